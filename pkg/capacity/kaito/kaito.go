// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kaito finds and releases the machines of KAITO's controller for a Workspace: a NodePool and its
// NodeClaims in karpenter mode, single NodeClaims with gpu-provisioner.
//
// It decides from labels which of these objects belong to which Workspace. It only ever deletes them, and must not
// know what runs on the machines.
package kaito

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
)

// labelManagedBy marks NodePools of KAITO's controller.
const labelManagedBy = "karpenter.kaito.sh/managed-by"

// index finds objects by the Workspace in their labels.
const index = "kaito.workspace"

// Kinds of objects for machines of KAITO's controller.
const (
	nodePool  = "NodePool"
	nodeClaim = "NodeClaim"
)

// form is one form of KAITO's objects: the kind, a selector of KAITO's objects, and the labels with their
// Workspace.
type form struct {
	kind, selector, name, namespace string
}

// notOurs excludes this controller's machines. They have the same labels with names of Workspaces.
const notOurs = "!" + v1beta1.LabelWorkspaceUID + "," + v1beta1.LabelManagedBy + "!=" + v1beta1.ManagedBy

// pools and agentPools are watched. The NodeClaims of a NodePool come and go with it, and are read on release only.
func pools() form {
	return form{nodePool, labelManagedBy + "=kaito," + notOurs, v1beta1.LabelMachineWorkspaceName, v1beta1.LabelMachineWorkspaceNamespace}
}

func agentPools() form {
	return form{nodeClaim, v1beta1.LabelWorkspace + "," + notOurs, v1beta1.LabelWorkspace, v1beta1.LabelWorkspaceNamespace}
}

func poolClaims() form {
	return form{nodeClaim, notOurs, v1beta1.LabelMachineWorkspaceName, v1beta1.LabelMachineWorkspaceNamespace}
}

// object is an empty object of the form; only metadata is ever read.
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

// workspace is the one in an object's labels; empty if there is none.
func (f form) workspace(object client.Object) types.NamespacedName {
	names := object.GetLabels()
	out := types.NamespacedName{Namespace: names[f.namespace], Name: names[f.name]}
	if out.Name == "" || out.Namespace == "" {
		return types.NamespacedName{}
	}
	return out
}

// Machines are those bought by KAITO's controller.
type Machines struct {
	cached client.Reader
	live   client.Reader
	writer client.Writer
	forms  []form
}

// New returns the machines of a cluster with these kinds. The cache is that of CacheOptions.
func New(cached, live client.Reader, writer client.Writer, kinds []schema.GroupKind) *Machines {
	return &Machines{cached: cached, live: live, writer: writer, forms: served([]form{pools(), agentPools()}, kinds)}
}

func served(forms []form, kinds []schema.GroupKind) []form {
	return slices.DeleteFunc(forms, func(f form) bool { return !slices.Contains(kinds, f.gvk().GroupKind()) })
}

// CacheOptions keep the metadata of KAITO's objects that pass narrow; its argument is the label with a Workspace's
// namespace. The manager's own cache keeps the same kinds with another selector.
func CacheOptions(
	kinds []schema.GroupKind, narrow func(selector labels.Selector, key string) labels.Selector,
) (cache.Options, error) {
	byObject := map[client.Object]cache.ByObject{}
	for _, f := range served([]form{pools(), agentPools()}, kinds) {
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

// Index has the cache filled, and indexed by Workspace.
func (m *Machines) Index(ctx context.Context, indexer client.FieldIndexer) error {
	for _, f := range m.forms {
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

// Watched returns the watched kinds.
func (m *Machines) Watched() []Watched {
	var out []Watched
	for _, f := range m.forms {
		out = append(out, Watched{Object: f.object(), WorkspaceOf: f.workspace})
	}
	return out
}

// Of returns the sorted names of KAITO's objects for a Workspace, from the cache.
func (m *Machines) Of(ctx context.Context, workspace types.NamespacedName) ([]string, error) {
	var out []string
	for _, f := range m.forms {
		list := f.list()
		err := m.cached.List(ctx, list, client.MatchingFields{index: workspace.String()}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return nil, fmt.Errorf("listing KAITO's %ss of workspace %s: %w", f.kind, workspace, err)
		}
		out = append(out, names(f.kind, list.Items)...)
	}
	slices.Sort(out)
	return out, nil
}

// Release deletes KAITO's objects for a Workspace, and returns the sorted names of the remaining ones. None means
// that the API server confirmed it.
func (m *Machines) Release(ctx context.Context, workspace types.NamespacedName) ([]string, error) {
	forms := slices.Clone(m.forms) // a NodePool goes before its NodeClaims: it would replace them
	if slices.Contains(forms, pools()) {
		forms = append(forms, poolClaims())
	}
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
		left = append(left, names(f.kind, list.Items)...)
		for i := range list.Items {
			if err := m.delete(ctx, f, &list.Items[i]); err != nil {
				return left, err
			}
		}
	}
	slices.Sort(left)
	return slices.Compact(left), nil
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
