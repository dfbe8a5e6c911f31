// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watched limits an installation to some namespaces: to their Workspaces, and to the machines of these
// Workspaces.
//
// It decides what such an installation reads. It must not know the purpose of the objects.
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

// Namespaces are the watched ones; none means all.
type Namespaces []string

// All reports whether the installation watches every namespace.
func (n Namespaces) All() bool { return len(n) == 0 }

// Has reports whether the installation watches a namespace.
func (n Namespaces) Has(namespace string) bool { return n.All() || slices.Contains(n, namespace) }

// Cached are the namespaces of a cache, with others; nil means all.
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

// Named selects the namespaces themselves, by a label of the API server.
func (n Namespaces) Named() labels.Selector {
	return n.Select(labels.Everything(), corev1.LabelMetadataName)
}

// Select narrows a selector to objects with a watched namespace in the label of that key.
func (n Namespaces) Select(selector labels.Selector, key string) labels.Selector {
	if n.All() {
		return selector
	}
	requirement, err := labels.NewRequirement(key, selection.In, n)
	if err != nil { // a key or a value that no label may have: no object has it
		return labels.Nothing()
	}
	return selector.Add(*requirement)
}

// Reader returns a reader of these namespaces alone. A list of namespaced objects covers each of them, and a list
// of Karpenter's kinds, which have no namespace, leaves out the machines of other namespaces' Workspaces. Lists of
// the kinds in everywhere stay unchanged.
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
	// everywhere are the Go types of lists over all namespaces.
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

// karpenter is the group of the machines' kinds. Importing its package changes global state.
const karpenter = "karpenter.sh"

// listEach reads one namespace after the other.
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

// listMachines leaves out machines of other namespaces' Workspaces. An object without a Workspace belongs to
// nobody.
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

// isForOthers reports whether labels, in this project's form or KAITO's, name a Workspace of another namespace.
func (r *reader) isForOthers(names map[string]string) bool {
	for _, key := range []string{v1beta1.LabelMachineWorkspaceNamespace, v1beta1.LabelWorkspaceNamespace} {
		if namespace := names[key]; namespace != "" && !r.namespaces.Has(namespace) {
			return true
		}
	}
	return false
}
