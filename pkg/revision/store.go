// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
)

const (
	// limit is the number of revisions that a Workspace keeps, apart from further revisions in use.
	limit = 10
	// Retry intervals, because no watch reports that a name is free.
	retryTaken       = time.Minute
	retryTerminating = 2 * time.Second
)

// Store reads and writes the revisions of Workspaces.
type Store struct {
	client client.Client
	live   client.Reader
	cache  *cache
}

// NewStore returns a Store. The client reads from caches and writes; live reads past the caches.
func NewStore(cached client.Client, live client.Reader) *Store {
	return &Store{client: cached, live: live, cache: newCache()}
}

// List returns the revisions of a Workspace, as the cache shows them.
func (s *Store) List(ctx context.Context, ws *v1beta1.Workspace) (History, error) {
	return s.list(ctx, s.client, ws)
}

// ListLive returns the revisions of a Workspace, as the API server has them.
func (s *Store) ListLive(ctx context.Context, ws *v1beta1.Workspace) (History, error) {
	return s.list(ctx, s.live, ws)
}

func (s *Store) list(ctx context.Context, from client.Reader, ws *v1beta1.Workspace) (History, error) {
	list := &appsv1.ControllerRevisionList{}
	ours := client.MatchingLabels{v1beta1.LabelRevisionOwner: ws.Name, v1beta1.LabelManagedBy: v1beta1.ManagedBy}
	if err := from.List(ctx, list, client.InNamespace(ws.Namespace), ours, client.UnsafeDisableDeepCopy); err != nil {
		return History{}, fmt.Errorf("listing revisions: %w", err)
	}
	return s.history(slices.DeleteFunc(list.Items, func(item appsv1.ControllerRevision) bool {
		return !metav1.IsControlledBy(&item, ws)
	})), nil
}

func (s *Store) history(objects []appsv1.ControllerRevision) History {
	slices.SortFunc(objects, compare)
	return History{Objects: objects, cache: s.cache}
}

// Pin is a revision to store.
type Pin struct {
	Workspace *v1beta1.Workspace
	Inputs    render.Inputs
	// Revision is the revision to store. Pin sets its inputs and its name.
	Revision *Revision
	// IsFallback marks a replacement from the same inputs.
	IsFallback bool
	// Known are the revisions of the Workspace. InUse names the revisions that must not be deleted.
	Known History
	InUse []string
}

// Pin stores a revision and deletes the oldest ones over the limit. If another pass has already stored it, Pin returns
// the stored revision, or the newest successor of a first revision. The error is a *progress.StalledError if the name
// is taken, and a *progress.WaitingError while an old revision of that name is being deleted.
func (s *Store) Pin(ctx context.Context, pin Pin) (*Revision, error) {
	out := pin.Revision
	out.Inputs, out.Plan = &pin.Inputs, out.Plan.Abridged()
	object, err := objectOf(pin)
	if err != nil {
		return nil, err
	}
	err = s.client.Create(ctx, object, client.FieldOwner(apply.FieldOwner))
	if apierrors.IsAlreadyExists(err) {
		return s.adopt(ctx, pin, object)
	}
	if err != nil {
		return nil, fmt.Errorf("creating ControllerRevision %s: %w", object.Name, err)
	}
	out.Name = object.Name
	return out, s.trim(ctx, pin)
}

func objectOf(pin Pin) (*appsv1.ControllerRevision, error) {
	raw, err := json.Marshal(pin.Revision)
	if err != nil {
		return nil, fmt.Errorf("encoding the revision: %w", err)
	}
	hash, err := Hash(pin.Inputs)
	if err != nil {
		return nil, err
	}
	context, err := ContextHash(pin.Inputs)
	if err != nil {
		return nil, err
	}
	ws, number := pin.Workspace, pin.Known.Next()
	object := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: Name(ws, hash, number, pin.IsFallback), Namespace: ws.Namespace,
			Labels:          map[string]string{v1beta1.LabelRevisionOwner: ws.Name, v1beta1.LabelManagedBy: v1beta1.ManagedBy},
			Annotations:     map[string]string{v1beta1.AnnotationHash: hash, v1beta1.AnnotationContext: context},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ws, v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind))},
		},
		Data: runtime.RawExtension{Raw: raw}, Revision: number,
	}
	promise, err := promiseText(ws, &pin.Revision.Plan)
	if promise != "" {
		object.Annotations[v1beta1.AnnotationNodes] = promise
	}
	return object, err
}

// adopt returns the existing revision of that name if it has the same inputs and the same owner.
func (s *Store) adopt(ctx context.Context, pin Pin, object *appsv1.ControllerRevision) (*Revision, error) {
	existing := &appsv1.ControllerRevision{}
	if err := s.live.Get(ctx, client.ObjectKeyFromObject(object), existing); err != nil {
		return nil, fmt.Errorf("reading ControllerRevision %s: %w", object.Name, err)
	}
	if HasSameInputs(existing, object) && metav1.IsControlledBy(existing, pin.Workspace) {
		if pin.IsFallback {
			return s.cache.decode(existing)
		}
		return s.newestOf(ctx, pin)
	}
	if controller := metav1.GetControllerOf(existing); controller != nil && controller.Name == pin.Workspace.Name {
		return nil, &progress.WaitingError{
			Message: fmt.Sprintf("waiting for the old ControllerRevision %s to be deleted", object.Name),
			After:   retryTerminating,
		}
	}
	return nil, &progress.StalledError{
		Reason: v1beta1.ReasonNameTaken,
		Message: fmt.Sprintf("ControllerRevision %s/%s exists but does not belong to this Workspace: "+
			"delete it, or create the Workspace under another name", object.Namespace, object.Name),
		RetryAfter: retryTaken,
	}
}

// newestOf reads the newest revision of the inputs from the API server, because the cache has no such revision.
func (s *Store) newestOf(ctx context.Context, pin Pin) (*Revision, error) {
	history, err := s.ListLive(ctx, pin.Workspace)
	if err != nil {
		return nil, err
	}
	newest, err := history.Match(pin.Workspace, pin.Inputs)
	if newest == nil && err == nil { // it existed a moment ago
		err = progress.Behind("revision")
	}
	return newest, err
}

// trim deletes the oldest unused revisions over the limit.
func (s *Store) trim(ctx context.Context, pin Pin) error {
	for i := range max(0, len(pin.Known.Objects)+1-limit) {
		old := &pin.Known.Objects[i]
		if old.Name == pin.Revision.Name || slices.Contains(pin.InUse, old.Name) {
			continue
		}
		if err := client.IgnoreNotFound(s.client.Delete(ctx, old)); err != nil {
			return fmt.Errorf("deleting ControllerRevision %s: %w", old.Name, err)
		}
	}
	return nil
}
