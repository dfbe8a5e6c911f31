// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kaito finds and releases the machines of KAITO's controller for a Workspace: a NodePool and its
// NodeClaims in karpenter mode, single NodeClaims with gpu-provisioner.
//
// Package takeover decides from the form of these objects to which Workspace they belong. This package lists and
// deletes them, and must not depend on what runs on the machines.
package kaito

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/takeover"
)

// index finds objects by the Workspace in their labels.
const index = "kaito.workspace"

// Kinds of objects for the machines of KAITO's controller.
const (
	nodePool  = "NodePool"
	nodeClaim = "NodeClaim"
)

// form is one form of KAITO's objects: their kind and selector, the labels with the name and namespace of their
// Workspace, and the check of one object.
type form struct {
	kind, selector, name, namespace string

	isOf func(object metav1.Object, workspace types.NamespacedName) bool
}

// notOurs excludes this controller's machines, which have the same labels for their Workspace.
const notOurs = "!" + v1beta1.LabelWorkspaceUID + "," + v1beta1.LabelManagedBy + "!=" + v1beta1.ManagedBy

// The NodeClaims of NodePools have a separate cache, because a cache has one selector for each kind.
func pools() form {
	return form{
		nodePool, takeover.LabelManagedBy + "=" + takeover.ManagedBy + "," + notOurs,
		v1beta1.LabelMachineWorkspaceName, v1beta1.LabelMachineWorkspaceNamespace, takeover.IsPool,
	}
}

func agentPools() form {
	return form{
		nodeClaim, v1beta1.LabelWorkspace + "," + notOurs, v1beta1.LabelWorkspace, v1beta1.LabelWorkspaceNamespace,
		takeover.IsAgentClaim,
	}
}

func poolClaims() form {
	return form{
		nodeClaim, v1beta1.LabelMachineWorkspaceName + "," + notOurs, v1beta1.LabelMachineWorkspaceName, v1beta1.LabelMachineWorkspaceNamespace, takeover.IsPoolClaim,
	}
}

// object returns an empty object of the form's kind. Only metadata is read.
func (f form) object() *metav1.PartialObjectMetadata {
	out := &metav1.PartialObjectMetadata{}
	out.SetGroupVersionKind(f.gvk())
	return out
}

func (f form) list() *metav1.PartialObjectMetadataList {
	out := &metav1.PartialObjectMetadataList{}
	gvk := f.gvk()
	gvk.Kind += "List"
	out.SetGroupVersionKind(gvk)
	return out
}

func (f form) gvk() schema.GroupVersionKind { return nodeclaim.GroupVersion().WithKind(f.kind) }

// of selects the objects of one Workspace.
func (f form) of(workspace types.NamespacedName) (labels.Selector, error) {
	text := fmt.Sprintf("%s,%s=%s,%s=%s", f.selector, f.name, workspace.Name, f.namespace, workspace.Namespace)
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("selecting KAITO's %ss of workspace %s: %w", f.kind, workspace, err)
	}
	return selector, nil
}

// workspace returns the Workspace in an object's labels; empty if there is none.
func (f form) workspace(object client.Object) types.NamespacedName {
	names := object.GetLabels()
	out := types.NamespacedName{Namespace: names[f.namespace], Name: names[f.name]}
	if out.Name == "" || out.Namespace == "" {
		return types.NamespacedName{}
	}
	return out
}

// Machines finds and releases the machines of KAITO's controller.
type Machines struct {
	cached Caches[client.Reader]
	live   client.Reader
	writer client.Writer
	forms  []form
}

// Caches are the two caches: Main has NodePools and gpu-provisioner's NodeClaims, and PoolClaims has the NodeClaims of
// NodePools.
type Caches[T any] struct{ Main, PoolClaims T }

// New returns the Machines of a cluster with these kinds. The caches must have the options from CacheOptions.
func New(cached Caches[client.Reader], live client.Reader, writer client.Writer, kinds []schema.GroupKind) *Machines {
	return &Machines{cached: cached, live: live, writer: writer, forms: served([]form{pools(), agentPools()}, kinds)}
}

func served(forms []form, kinds []schema.GroupKind) []form {
	return slices.DeleteFunc(forms, func(f form) bool { return !slices.Contains(kinds, f.gvk().GroupKind()) })
}

// CacheOptions returns the options of caches for the metadata of KAITO's objects. narrow restricts a selector to some
// namespaces; key is the label with a Workspace's namespace. The manager's own cache has the same kinds with another
// selector.
func CacheOptions(
	kinds []schema.GroupKind, narrow func(selector labels.Selector, key string) labels.Selector,
) (Caches[cache.Options], error) {
	main, err := cacheOf(served([]form{pools(), agentPools()}, kinds), narrow)
	if err != nil {
		return Caches[cache.Options]{}, err
	}
	claims, err := cacheOf(served([]form{poolClaims()}, kinds), narrow)
	return Caches[cache.Options]{Main: main, PoolClaims: claims}, err
}

func cacheOf(forms []form, narrow func(selector labels.Selector, key string) labels.Selector) (cache.Options, error) {
	byObject := map[client.Object]cache.ByObject{}
	for _, f := range forms {
		selector, err := labels.Parse(f.selector)
		if err != nil {
			return cache.Options{}, fmt.Errorf("selecting KAITO's %ss: %w", f.kind, err)
		}
		byObject[f.object()] = cache.ByObject{Label: narrow(selector, f.namespace)}
	}
	return cache.Options{ByObject: byObject, DefaultTransform: keep}, nil
}

// keep drops unused fields.
func keep(object any) (any, error) {
	if metadata, ok := object.(*metav1.PartialObjectMetadata); ok {
		metadata.ManagedFields, metadata.Annotations = nil, nil
	}
	return object, nil
}

// Index adds the kinds to the caches, and indexes them by Workspace.
func (m *Machines) Index(ctx context.Context, indexers Caches[client.FieldIndexer]) error {
	if err := fill(ctx, indexers.Main, m.forms); err != nil {
		return err
	}
	return fill(ctx, indexers.PoolClaims, m.claims())
}

// claims returns the form of the NodeClaims of NodePools, if the cluster has NodePools.
func (m *Machines) claims() []form {
	if !slices.ContainsFunc(m.forms, func(f form) bool { return f.kind == nodePool }) {
		return nil
	}
	return []form{poolClaims()}
}

func fill(ctx context.Context, indexer client.FieldIndexer, forms []form) error {
	for _, f := range forms {
		err := indexer.IndexField(ctx, f.object(), index, func(object client.Object) []string {
			if workspace := f.workspace(object); workspace.Name != "" {
				return []string{workspace.String()}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("indexing KAITO's %ss: %w", f.kind, err)
		}
	}
	return nil
}

// Watched is a kind of KAITO's objects. A changed object requeues the Workspace in its labels.
type Watched struct {
	Object      client.Object
	WorkspaceOf func(object client.Object) types.NamespacedName
}

// Watched returns the kinds to watch, by their cache. The deletion of a NodeClaim ends the wait for its release.
func (m *Machines) Watched() Caches[[]Watched] {
	return Caches[[]Watched]{Main: watchedOf(m.forms), PoolClaims: watchedOf(m.claims())}
}

func watchedOf(forms []form) []Watched {
	var out []Watched
	for _, f := range forms {
		out = append(out, Watched{Object: f.object(), WorkspaceOf: f.workspace})
	}
	return out
}

// Of returns the sorted names of KAITO's objects for a Workspace, from the cache.
func (m *Machines) Of(ctx context.Context, workspace types.NamespacedName) ([]string, error) {
	var out []string
	for _, f := range m.forms {
		found, err := f.find(ctx, m.cached.Main, workspace)
		if err != nil {
			return nil, err
		}
		out = append(out, names(f.kind, found)...)
	}
	slices.Sort(out)
	return out, nil
}

// NodeClaims returns KAITO's NodeClaims for a Workspace by name, from the caches. Callers must not change them.
func (m *Machines) NodeClaims(ctx context.Context, workspace types.NamespacedName) ([]metav1.PartialObjectMetadata, error) {
	var out []metav1.PartialObjectMetadata
	for _, f := range m.forms {
		if f.kind != nodeClaim {
			continue
		}
		found, err := f.find(ctx, m.cached.Main, workspace)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	for _, f := range m.claims() {
		found, err := f.find(ctx, m.cached.PoolClaims, workspace)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	slices.SortFunc(out, func(a, b metav1.PartialObjectMetadata) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// find returns the objects of the form for a Workspace from a cache.
func (f form) find(ctx context.Context, cached client.Reader, workspace types.NamespacedName) ([]metav1.PartialObjectMetadata, error) {
	list := f.list()
	err := cached.List(ctx, list, client.MatchingFields{index: workspace.String()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing KAITO's %ss of workspace %s: %w", f.kind, workspace, err)
	}
	return f.those(list.Items, workspace), nil
}

// Release deletes KAITO's objects for a Workspace, and returns the sorted names of the remaining ones. An empty result
// is confirmed by the API server.
func (m *Machines) Release(ctx context.Context, workspace types.NamespacedName) ([]string, error) {
	forms := slices.Clone(m.forms) // NodePools first: they would replace their NodeClaims
	forms = append(forms, m.claims()...)
	var left []string
	for _, f := range forms {
		selector, err := f.of(workspace)
		if err != nil {
			return left, err
		}
		list := f.list()
		if err := m.live.List(ctx, list, client.MatchingLabelsSelector{Selector: selector}); err != nil {
			return left, fmt.Errorf("listing KAITO's %ss of workspace %s: %w", f.kind, workspace, err)
		}
		objects := f.those(list.Items, workspace)
		left = append(left, names(f.kind, objects)...)
		for i := range objects {
			if err := m.delete(ctx, f, &objects[i]); err != nil {
				return left, err
			}
		}
	}
	slices.Sort(left)
	return slices.Compact(left), nil
}

// those returns the objects that have the form for a Workspace. Labels alone prove nothing: anybody who creates a
// NodePool can give it KAITO's labels, and its machines may serve others.
func (f form) those(objects []metav1.PartialObjectMetadata, workspace types.NamespacedName) []metav1.PartialObjectMetadata {
	return slices.DeleteFunc(slices.Clone(objects), func(object metav1.PartialObjectMetadata) bool { return !f.isOf(&object, workspace) })
}

func (m *Machines) delete(ctx context.Context, f form, object *metav1.PartialObjectMetadata) error {
	if !object.DeletionTimestamp.IsZero() {
		return nil
	}
	object.SetGroupVersionKind(f.gvk())
	err := m.writer.Delete(ctx, object, client.Preconditions{UID: &object.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting KAITO's %s %q: %w", f.kind, object.Name, err)
	}
	return nil
}

func names(kind string, objects []metav1.PartialObjectMetadata) []string {
	out := make([]string, 0, len(objects))
	for i := range objects {
		out = append(out, kind+" "+objects[i].Name)
	}
	return out
}
