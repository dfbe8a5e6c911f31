// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watched limits an installation to some namespaces: to their Workspaces, and to the machines of these
// Workspaces.
//
// It decides which objects such an installation reads. It must not know the purpose of the objects.
package watched

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Namespaces are the watched namespaces; none means all.
type Namespaces []string

// All reports whether the installation watches every namespace.
func (n Namespaces) All() bool { return len(n) == 0 }

// Has reports whether the installation watches a namespace.
func (n Namespaces) Has(namespace string) bool { return n.All() || slices.Contains(n, namespace) }

// Cached returns the watched namespaces and others for a cache; nil means all.
func (n Namespaces) Cached(others ...string) map[string]cache.Config {
	if n.All() {
		return nil
	}
	out := map[string]cache.Config{}
	for _, name := range append(slices.Clone(n), others...) {
		out[name] = cache.Config{}
	}
	return out
}

// Named selects the Namespace objects themselves, by the label that the API server sets.
func (n Namespaces) Named() labels.Selector {
	return n.Select(labels.Everything(), corev1.LabelMetadataName)
}

// Select narrows a selector to objects whose label with this key names a watched namespace.
func (n Namespaces) Select(selector labels.Selector, key string) labels.Selector {
	if n.All() {
		return selector
	}
	requirement, err := labels.NewRequirement(key, selection.In, n)
	if err != nil { // no label may have this key or value, so no object does
		return labels.Nothing()
	}
	return selector.Add(*requirement)
}

// Reader returns a reader of the watched namespaces only. A list of namespaced objects covers each watched namespace.
// Karpenter's kinds have no namespace; their lists leave out the machines of Workspaces in other namespaces. Lists of
// the types in everywhere are unchanged.
func (n Namespaces) Reader(
	inner client.Reader, scheme *runtime.Scheme, mapper meta.RESTMapper, everywhere ...client.ObjectList,
) client.Reader {
	if n.All() {
		return inner
	}
	out := &reader{Reader: inner, namespaces: n, scheme: scheme, mapper: mapper}
	for _, list := range everywhere {
		out.everywhere = append(out.everywhere, fmt.Sprintf("%T", list))
	}
	return out
}

type reader struct {
	client.Reader
	namespaces Namespaces
	scheme     *runtime.Scheme
	mapper     meta.RESTMapper
	// everywhere has the Go types whose lists cover all namespaces.
	everywhere []string
}

// List implements client.Reader.
func (r *reader) List(ctx context.Context, list client.ObjectList, asked ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(asked)
	if options.Namespace != "" || slices.Contains(r.everywhere, fmt.Sprintf("%T", list)) {
		return r.Reader.List(ctx, list, options)
	}
	gvk, err := apiutil.GVKForObject(list, r.scheme)
	if err != nil {
		return fmt.Errorf("listing %T: %w", list, err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	isNamespaced, err := apiutil.IsGVKNamespaced(gvk, r.mapper)
	switch {
	case err != nil:
		return fmt.Errorf("listing %s: %w", gvk.Kind, err)
	case isNamespaced:
		return r.listEach(ctx, list, *options)
	case gvk.Group == karpenter:
		return r.listMachines(ctx, list, options)
	default:
		return r.Reader.List(ctx, list, options)
	}
}

// karpenter is the API group of the machines. It is a constant here because importing Karpenter's package changes
// global state.
const karpenter = "karpenter.sh"

// listEach lists one namespace after the other.
func (r *reader) listEach(ctx context.Context, list client.ObjectList, options client.ListOptions) error {
	var all []runtime.Object
	for _, namespace := range r.namespaces {
		options.Namespace = namespace
		part, ok := list.DeepCopyObject().(client.ObjectList)
		if !ok {
			return fmt.Errorf("%T is not a list", list)
		}
		if err := r.Reader.List(ctx, part, &options); err != nil {
			return err
		}
		items, err := meta.ExtractList(part)
		if err != nil {
			return fmt.Errorf("reading %T: %w", part, err)
		}
		all = append(all, items...)
	}
	return meta.SetList(list, all)
}

// listMachines leaves out the machines of Workspaces in other namespaces. It keeps objects without a Workspace.
func (r *reader) listMachines(ctx context.Context, list client.ObjectList, options *client.ListOptions) error {
	if err := r.Reader.List(ctx, list, options); err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("reading %T: %w", list, err)
	}
	kept := slices.DeleteFunc(items, func(item runtime.Object) bool {
		object, err := meta.Accessor(item)
		return err != nil || r.isForOthers(object.GetLabels())
	})
	return meta.SetList(list, kept)
}

// isForOthers reports whether labels of this project or of KAITO name a Workspace in an unwatched namespace.
func (r *reader) isForOthers(names map[string]string) bool {
	for _, key := range []string{v1beta1.LabelMachineWorkspaceNamespace, v1beta1.LabelWorkspaceNamespace} {
		if namespace := names[key]; namespace != "" && !r.namespaces.Has(namespace) {
			return true
		}
	}
	return false
}
