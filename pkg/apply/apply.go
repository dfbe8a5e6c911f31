// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apply writes objects by server-side apply, under one field owner. It writes only if the cluster's object
// differs.
//
// It decides whether a write is necessary and allowed: a foreign object of the same name is an error, never a takeover.
// It must not know the purpose of the objects.
package apply

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// FieldOwner is the field manager of all applied objects.
const FieldOwner = "modelberth"

// TakenError is returned if an object of the desired name has another owner.
type TakenError struct {
	Kind      string
	Namespace string
	Name      string
	// Owner is the kind of the object that needs the name.
	Owner string
}

// Error names the object and the remedy.
func (e *TakenError) Error() string {
	return fmt.Sprintf("%s %s/%s exists and has another owner: "+
		"delete it, or create the %s under another name", e.Kind, e.Namespace, e.Name, cmp.Or(e.Owner, v1beta1.WorkspaceKind))
}

// TerminatingError is returned if an object of the desired name is being deleted.
type TerminatingError struct {
	Kind      string
	Namespace string
	Name      string
}

// Error names the object.
func (e *TerminatingError) Error() string {
	return fmt.Sprintf("waiting for the old %s %s/%s to be deleted", e.Kind, e.Namespace, e.Name)
}

// Applier applies objects.
type Applier struct {
	cached   client.Client
	live     client.Reader
	settled  *settled
	accepted *accepted
}

// New returns an Applier. cached must read from a cache of all objects. That cache may use Keep: of foreign objects,
// only names, owners and deletion times are needed. live must not use a cache. informers belong to cached; with nil,
// the Applier compares an object in every pass.
func New(cached client.Client, live client.Reader, informers Informers, clock clock.PassiveClock) *Applier {
	return &Applier{cached: cached, live: live, settled: newSettled(informers), accepted: newAccepted(clock)}
}

// Apply makes one object match desired, which must have owner as its controller. It returns true if it wrote. If
// desired has a resourceVersion, Apply overwrites no other version. Errors are *TakenError, *TerminatingError or the
// API server's.
func (a *Applier) Apply(ctx context.Context, owner, desired client.Object) (bool, error) {
	found, err := a.look(ctx, a.cached, owner, desired)
	if err != nil {
		return false, err
	}
	if found.existing == nil {
		err := a.create(ctx, found.intent, firstVersion)
		if !apierrors.IsConflict(err) {
			return err == nil, wrap("applying", desired, found.intent, err)
		}
		if found, err = a.look(ctx, a.live, owner, desired); err != nil { // the cache lags
			return false, err
		}
		if found.existing == nil { // deleted meanwhile, or the API server does not create over a version
			err := a.create(ctx, found.intent, "")
			return err == nil, wrap("applying", desired, found.intent, err)
		}
	}
	return a.update(ctx, found, desired)
}

// State is the state of an object.
type State int

// The states of an object whose name has no other owner.
const (
	Missing State = iota
	Outdated
	Applied
)

// State returns the state of the desired object, from the cache. It returns the same errors as Apply.
func (a *Applier) State(ctx context.Context, owner, desired client.Object) (State, error) {
	existing, gvk, err := a.ours(ctx, a.cached, owner, desired)
	if err != nil || existing == nil {
		return Missing, err
	}
	found, err := a.comparisonOf(existing, gvk, desired)
	if err != nil {
		return Missing, err
	}
	if same, err := a.isSettled(ctx, found, desired); err != nil || !same {
		return Outdated, wrap("comparing", desired, found.intent, err)
	}
	return Applied, nil
}

// Check returns an error if desired cannot be created: the name has another owner, or the API server would reject the
// object. For a while, an answer counts for all objects that differ only in their owner. It returns the same errors as
// Apply.
func (a *Applier) Check(ctx context.Context, owner, desired client.Object) error {
	found, err := a.look(ctx, a.cached, owner, desired)
	if err != nil || found.existing != nil {
		return err
	}
	shape, err := shapeOf(owner, found.intent)
	if err != nil || a.accepted.holds(shape) {
		return wrap("checking", desired, found.intent, err)
	}
	err = a.accepted.ask(ctx, shape, func(ctx context.Context) error {
		// A dry run of a create is cheaper than that of an apply, and does not change the managed fields.
		return a.cached.Create(ctx, found.intent.DeepCopy(), client.DryRunAll, client.FieldOwner(FieldOwner))
	})
	if apierrors.IsAlreadyExists(err) { // the cache lags
		_, err = a.look(ctx, a.live, owner, desired)
		return err
	}
	return wrap("checking", desired, found.intent, err)
}

// firstVersion is the resourceVersion of an empty store, so no object has it. An apply over it creates the object or,
// if one of that name exists, fails with a conflict.
const firstVersion = "1"

// create creates an object that the cache lacks. over is the resourceVersion to apply over. With firstVersion, an object
// that exists after all stays unchanged, and the error is a conflict, so no live read is necessary before.
func (a *Applier) create(ctx context.Context, intent *unstructured.Unstructured, over string) error {
	intent = intent.DeepCopy()
	intent.SetResourceVersion(over)
	return a.cached.Apply(ctx, client.ApplyConfigurationFromUnstructured(intent), client.FieldOwner(FieldOwner))
}

// update applies over our own object, if anything differs. Even if the cache lags, a deleted object stays deleted, and
// an object that another owner has created again stays unchanged.
func (a *Applier) update(ctx context.Context, found comparison, desired client.Object) (bool, error) {
	if same, err := a.isSettled(ctx, found, desired); err != nil || same {
		return false, err
	}
	found.intent.SetUID(found.existing.GetUID())
	if version := desired.GetResourceVersion(); version != "" {
		found.intent.SetResourceVersion(version)
	}
	intent := client.ApplyConfigurationFromUnstructured(found.intent)
	err := a.cached.Apply(ctx, intent, client.FieldOwner(FieldOwner), client.ForceOwnership)
	if isOfAnotherUID(err) {
		return false, &TerminatingError{
			Kind: found.intent.GetKind(), Namespace: desired.GetNamespace(), Name: desired.GetName(),
		}
	}
	return err == nil, wrap("applying", desired, found.intent, err)
}

// isSettled reports whether the found object matches desired. If so, it records the match.
func (a *Applier) isSettled(ctx context.Context, found comparison, desired client.Object) (bool, error) {
	if found.isSettled {
		return true, nil
	}
	same, err := isApplied(found.intent, found.existing)
	if gvk := found.intent.GroupVersionKind(); same {
		a.settled.note(ctx, gvk, desired, found.existing, func() bool {
			now, err := a.existing(ctx, a.cached, gvk, desired)
			return err == nil && now != nil && now.GetUID() == found.existing.GetUID()
		})
	}
	return same, err
}

// wrap adds the action and the object to an error; nil stays nil.
func wrap(doing string, desired client.Object, intent *unstructured.Unstructured, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s %s/%s: %w", doing, intent.GetKind(), desired.GetNamespace(), desired.GetName(), err)
}

// comparison pairs the desired object with the existing one, which is ours or nil. If they are known to match, the
// comparison is settled and has no intent.
type comparison struct {
	intent    *unstructured.Unstructured
	existing  client.Object
	isSettled bool
}

// look compares the desired object with the existing one. It returns an error if the existing object is not ours.
func (a *Applier) look(ctx context.Context, from client.Reader, owner, desired client.Object) (comparison, error) {
	existing, gvk, err := a.ours(ctx, from, owner, desired)
	if err != nil {
		return comparison{}, err
	}
	return a.comparisonOf(existing, gvk, desired)
}

// comparisonOf pairs the desired object with the existing one, which may be nil.
func (a *Applier) comparisonOf(existing client.Object, gvk schema.GroupVersionKind, desired client.Object) (comparison, error) {
	if existing != nil && a.settled.holds(desired, existing) {
		return comparison{existing: existing, isSettled: true}, nil
	}
	intent, err := intentOf(desired, gvk)
	if err != nil {
		return comparison{}, fmt.Errorf("applying %s %s: %w", gvk.Kind, desired.GetName(), err)
	}
	return comparison{intent: intent, existing: existing}, nil
}

// ours returns the object with desired's name, or nil, and its kind. It returns an error if the object is not ours.
func (a *Applier) ours(
	ctx context.Context, from client.Reader, owner, desired client.Object,
) (client.Object, schema.GroupVersionKind, error) {
	gvk, err := apiutil.GVKForObject(desired, a.cached.Scheme())
	if err != nil {
		return nil, gvk, fmt.Errorf("applying %T %s: %w", desired, desired.GetName(), err)
	}
	existing, err := a.existing(ctx, from, gvk, desired)
	if err != nil {
		return nil, gvk, fmt.Errorf("reading %s %s/%s: %w", gvk.Kind, desired.GetNamespace(), desired.GetName(), err)
	}
	if existing == nil {
		return nil, gvk, nil
	}
	of, err := apiutil.GVKForObject(owner, a.cached.Scheme())
	if err != nil {
		return nil, gvk, fmt.Errorf("applying %s %s: %w", gvk.Kind, desired.GetName(), err)
	}
	return existing, gvk, mayWrite(gvk.Kind, of.Kind, owner, existing)
}

// isOfAnotherUID reports whether the API server has an object of that name with another UID.
func isOfAnotherUID(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "metadata.uid"
	})
}

// existing returns the cluster's object, or nil.
func (a *Applier) existing(
	ctx context.Context, from client.Reader, gvk schema.GroupVersionKind, desired client.Object,
) (client.Object, error) {
	fresh, err := a.cached.Scheme().New(gvk)
	if err != nil {
		return nil, err
	}
	object, ok := fresh.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%s is not an object with metadata", gvk)
	}
	err = from.Get(ctx, client.ObjectKeyFromObject(desired), object)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return object, nil
}

func mayWrite(kind, ownerKind string, owner, existing client.Object) error {
	if metav1.IsControlledBy(existing, owner) && existing.GetDeletionTimestamp().IsZero() {
		return nil
	}
	controller := metav1.GetControllerOf(existing)
	former := controller != nil && controller.Kind == ownerKind && controller.Name == owner.GetName()
	if former || metav1.IsControlledBy(existing, owner) {
		return &TerminatingError{Kind: kind, Namespace: existing.GetNamespace(), Name: existing.GetName()}
	}
	return &TakenError{Kind: kind, Namespace: existing.GetNamespace(), Name: existing.GetName(), Owner: ownerKind}
}

// intentOf returns our fields, with their hash in an annotation.
func intentOf(desired client.Object, gvk schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(desired)
	if err != nil {
		return nil, err
	}
	intent := &unstructured.Unstructured{Object: content}
	intent.SetGroupVersionKind(gvk)
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "resourceVersion") // a condition of the write, not content
	dropNulls(content)
	encoded, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(encoded)
	annotations := intent.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1beta1.AnnotationAppliedHash] = hex.EncodeToString(sum[:8])
	intent.SetAnnotations(annotations)
	return intent, nil
}

// isApplied reports whether the object matches the intent. It must have every field of the intent: otherwise another
// client has changed one. It must also have the hash of the intent: otherwise the intent has lost a field since.
func isApplied(intent *unstructured.Unstructured, existing client.Object) (bool, error) {
	hash := intent.GetAnnotations()[v1beta1.AnnotationAppliedHash]
	if existing.GetAnnotations()[v1beta1.AnnotationAppliedHash] != hash {
		return false, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(existing)
	if err != nil {
		return false, err
	}
	wanted := map[string]any{}
	for key, value := range intent.Object {
		if key != "apiVersion" && key != "kind" { // typed objects from a cache do not have them
			wanted[key] = value
		}
	}
	return contains(content, wanted), nil
}

// contains reports whether have contains every value of want. Other values of have are defaults of the server or fields
// of other writers.
func contains(have, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := have.(map[string]any)
		if !ok {
			return len(want) == 0 && have == nil
		}
		for key, value := range want {
			if !contains(have[key], value) {
				return false
			}
		}
		return true
	case []any:
		have, ok := have.([]any)
		if !ok || len(have) != len(want) {
			return len(want) == 0 && len(have) == 0
		}
		for i := range want {
			if !contains(have[i], want[i]) {
				return false
			}
		}
		return true
	default:
		return have == want
	}
}

// dropNulls removes null values, because server-side apply would treat them as an intent.
func dropNulls(value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, item := range value {
			if item == nil {
				delete(value, key)
				continue
			}
			dropNulls(item)
		}
	case []any:
		for _, item := range value {
			dropNulls(item)
		}
	}
}
