// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/request"
)

// revisionLimit is how many revisions a Workspace keeps.
const revisionLimit = 10

// revisionHashLength is the length of the hash in a revision's name; the whole hash is compared.
const revisionHashLength = 10

// revision is what a ControllerRevision of a name pins.
type revision struct {
	// Name of the ControllerRevision.
	Name string `json:"-"`
	render.Revision
}

// inputs is what a revision is made from.
type inputs render.Inputs

// hash of the inputs in hex.
func (in inputs) hash() (string, error) { return hashOf(in) }

// isCheaper says whether all that differs from former inputs is a lower maxHourlyPrice: that takes nothing away
// from what runs.
func (in inputs) isCheaper(former *render.Inputs) bool {
	if former == nil {
		return false
	}
	before, after := inputs(*former).limit(), in.limit()
	return after > 0 && (before <= 0 || after < before) && equality.Semantic.DeepEqual(in.withoutLimit(), inputs(*former).withoutLimit())
}

// limit is the maxHourlyPrice; 0 where there is none.
func (in inputs) limit() float64 {
	return request.MaxHourlyPrice(&v1beta1.Workspace{Resource: in.Resource})
}

func (in inputs) withoutLimit() inputs {
	placement := v1beta1.PlacementSpec{}
	if in.Resource.Placement != nil {
		placement = *in.Resource.Placement
	}
	placement.MaxHourlyPrice = ""
	in.Resource.Placement = &placement
	return in
}

// context is the hash of the inputs that a Workspace's generation does not cover.
func (in inputs) context() (string, error) {
	return hashOf(map[string]any{"annotations": in.Annotations, "config": in.Config})
}

// hashOf hashes a value's JSON. encoding/json sorts maps, so equal values have equal hashes.
func hashOf(value any) (string, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("hashing the spec: %w", err)
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:]), nil
}

// renderingAnnotations are the annotations that shape the plan or the pods.
func renderingAnnotations(ws *v1beta1.Workspace) map[string]string {
	out := map[string]string{}
	for _, key := range render.ShapingAnnotations() {
		if value, ok := ws.Annotations[key]; ok {
			out[key] = value
		}
	}
	return out
}

// Kinds of revisions: the first one from some inputs, and those that a refusal made of the same.
const (
	firstRevision    = false
	fallbackRevision = true
)

func revisionName(ws *v1beta1.Workspace, hash string, number int64, isFallback bool) string {
	name := ws.Name + "-" + hash[:revisionHashLength]
	if isFallback {
		name += fmt.Sprintf("-%d", number)
	}
	return name
}

// pinned returns the newest revision that was made from the inputs, or nil. While the status says that the
// current generation is planned, the revision that it names counts: a new version of Modelberth may
// write the same spec down differently, and must not plan anew for that.
func (s *scope) pinned(in inputs) (*revision, error) {
	hash, err := in.hash()
	if err != nil {
		return nil, err
	}
	beside, err := in.context()
	if err != nil {
		return nil, err
	}
	status := &s.ws.Status
	isPlanned := status.ObservedGeneration == s.ws.Generation && isTrue(status.Conditions, v1beta1.ConditionPlanned)
	for i := len(s.revisions) - 1; i >= 0; i-- {
		annotations := s.revisions[i].Annotations
		isNamed := isPlanned && status.Plan != nil && status.Plan.Revision == s.revisions[i].Name
		if annotations[v1beta1.AnnotationHash] == hash || (isNamed && annotations[v1beta1.AnnotationContext] == beside) {
			return s.pins.decode(&s.revisions[i])
		}
	}
	return nil, nil
}

// labelMachines keeps the user's labels for machines.
func (r *revision) labelMachines(ws *v1beta1.Workspace) {
	labels, warnings := nodeLabels(ws)
	r.NodeLabels = labels
	r.Plan.Warnings = append(r.Plan.Warnings, warnings...)
}

// nextRevision is the number of the revision that follows those that are known.
func (s *scope) nextRevision() int64 {
	if count := len(s.revisions); count > 0 {
		return s.revisions[count-1].Revision + 1
	}
	return 1
}

// newestRevision returns the latest revision that can be read, or nil.
func (s *scope) newestRevision() *revision {
	for i := len(s.revisions) - 1; i >= 0; i-- {
		if out, err := s.pins.decode(&s.revisions[i]); err == nil {
			return out
		}
	}
	return nil
}

// createRevision pins a revision: the first one from these inputs, or one to fall back to. If another
// pass has pinned that one already, it counts, or in place of the first the newest that followed it.
func (r *Reconciler) createRevision(
	ctx context.Context, s *scope, in inputs, accepted *revision, isFallback bool,
) (*revision, error) {
	accepted.Inputs, accepted.Plan = (*render.Inputs)(&in), accepted.Plan.Abridged()
	raw, err := json.Marshal(accepted)
	if err != nil {
		return nil, fmt.Errorf("encoding the revision: %w", err)
	}
	hash, err := in.hash()
	if err != nil {
		return nil, err
	}
	beside, err := in.context()
	if err != nil {
		return nil, err
	}
	number := s.nextRevision()
	promise, err := promiseText(s, &accepted.Plan)
	if err != nil {
		return nil, err
	}
	object := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name:      revisionName(s.ws, hash, number, isFallback),
			Namespace: s.ws.Namespace,
			Labels: map[string]string{
				v1beta1.LabelRevisionOwner: s.ws.Name,
				v1beta1.LabelManagedBy:     v1beta1.ManagedBy,
			},
			Annotations:     map[string]string{v1beta1.AnnotationHash: hash, v1beta1.AnnotationContext: beside},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.ws, workspaceKind())},
		},
		Data:     runtime.RawExtension{Raw: raw},
		Revision: number,
	}
	if promise != "" {
		object.Annotations[v1beta1.AnnotationNodes] = promise
	}
	err = r.Client.Create(ctx, object, client.FieldOwner(apply.FieldOwner))
	if apierrors.IsAlreadyExists(err) {
		return r.adoptRevision(ctx, s, object, in, isFallback)
	}
	if err != nil {
		return nil, fmt.Errorf("creating ControllerRevision %s: %w", object.Name, err)
	}
	accepted.Name = object.Name
	return accepted, r.trimRevisions(ctx, s, accepted)
}

func (r *Reconciler) adoptRevision(
	ctx context.Context, s *scope, object *appsv1.ControllerRevision, in inputs, isFallback bool,
) (*revision, error) {
	existing := &appsv1.ControllerRevision{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(object), existing); err != nil {
		return nil, fmt.Errorf("reading ControllerRevision %s: %w", object.Name, err)
	}
	isSame := existing.Annotations[v1beta1.AnnotationHash] == object.Annotations[v1beta1.AnnotationHash]
	if isSame && metav1.IsControlledBy(existing, s.ws) {
		if isFallback {
			return s.pins.decode(existing)
		}
		return r.newestOf(ctx, s, in)
	}
	if controller := metav1.GetControllerOf(existing); controller != nil && controller.Name == s.ws.Name {
		return nil, &waitingError{
			message: fmt.Sprintf("waiting for the old ControllerRevision %s to be deleted", object.Name),
			after:   retryTerminating,
		}
	}
	return nil, &stalledError{
		reason: v1beta1.ReasonNameTaken,
		message: fmt.Sprintf("ControllerRevision %s/%s exists and does not belong to this Workspace; "+
			"delete it, or create the Workspace under another name", object.Namespace, object.Name),
		retryAfter: retryTaken,
	}
}

// newestOf returns the newest revision of some inputs past the cache, which shows none of them.
func (r *Reconciler) newestOf(ctx context.Context, s *scope, in inputs) (*revision, error) {
	if err := r.listRevisions(ctx, r.Live, s); err != nil {
		return nil, err
	}
	newest, err := s.pinned(in)
	if newest == nil && err == nil { // it was there just now
		err = behindOn("revision")
	}
	return newest, err
}

// namedRevisions are those that the status and the attempts name, but for attempts that are past.
func (s *scope) namedRevisions() []string {
	names := []string{s.ws.Status.LatestReadyRevision}
	if s.ws.Status.Plan != nil {
		names = append(names, s.ws.Status.Plan.Revision)
	}
	for i := range s.attempts {
		if s.attempts[i].Reason == "" || i == len(s.attempts)-1 {
			names = append(names, s.attempts[i].Revision)
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// trimRevisions deletes the oldest revisions over the limit, never one that is in use or answered last.
func (r *Reconciler) trimRevisions(ctx context.Context, s *scope, current *revision) error {
	inUse := append(s.namedRevisions(), current.Name)
	for _, set := range s.sets() {
		inUse = append(inUse, set.Annotations[v1beta1.AnnotationRevision])
	}
	for i := range max(0, len(s.revisions)+1-revisionLimit) {
		old := &s.revisions[i]
		if slices.Contains(inUse, old.Name) {
			continue
		}
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, old)); err != nil {
			return fmt.Errorf("deleting ControllerRevision %s: %w", old.Name, err)
		}
	}
	return nil
}
