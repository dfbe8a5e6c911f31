// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

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
)

// progressDeadline is the default of the field.
const progressDeadline = time.Hour

// rollbackOf returns the policy for failed rollouts; nil if they only stop.
func rollbackOf(set *v1beta1.InferenceSet) *v1beta1.RollbackSpec {
	if set.Spec.UpdateStrategy.RollingUpdate == nil || set.Spec.UpdateStrategy.Type == v1beta1.UpdateOnDelete {
		return nil
	}
	return set.Spec.UpdateStrategy.RollingUpdate.Rollback
}

func deadlineOf(set *v1beta1.InferenceSet) time.Duration {
	if policy := rollbackOf(set); policy != nil && policy.ProgressDeadline != nil && policy.ProgressDeadline.Duration > 0 {
		return policy.ProgressDeadline.Duration
	}
	return progressDeadline
}

// minReadyOf returns how long a replica with a new template must be ready before the next one follows.
func minReadyOf(set *v1beta1.InferenceSet) time.Duration {
	if set.Spec.UpdateStrategy.RollingUpdate == nil {
		return 0
	}
	return time.Duration(set.Spec.UpdateStrategy.RollingUpdate.MinReadySeconds) * time.Second
}

// revision is a template with its hash and the name of its ControllerRevision.
type revision struct {
	name, hash string
	data       []byte
}

// revisionOf names a template by its content, so a crash between two writes leaves nothing to repair.
func revisionOf(set *v1beta1.InferenceSet, t template) (*revision, error) {
	data, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encoding the template of InferenceSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	hash := templateHash(set, data)
	return &revision{revisionName(set, hash), hash, data}, nil
}

// revisionName contains a hash, so that nobody can replace the data.
func revisionName(set *v1beta1.InferenceSet, hash string) string { return set.Name + "-" + hash }

// templateHash hashes an encoded template. The UID of the set is part of it, because a set of the same name may have had
// the same template.
func templateHash(set *v1beta1.InferenceSet, data []byte) string {
	return digest(append([]byte(set.UID+"/"), data...))
}

// stored reads a ControllerRevision of a set; nil if it is missing, or was replaced. Its name proves that it was not.
func (r *Reconciler) stored(ctx context.Context, set *v1beta1.InferenceSet, name string) ([]byte, error) {
	object := &appsv1.ControllerRevision{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: set.Namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ControllerRevision %s/%s: %w", set.Namespace, name, err)
	}
	if name != revisionName(set, templateHash(set, object.Data.Raw)) {
		return nil, nil
	}
	return object.Data.Raw, nil
}

// previous reads the previous template. If it is missing or was replaced, the error is a waitError with the given problem.
func (r *Reconciler) previous(ctx context.Context, set *v1beta1.InferenceSet, name string, lack problem) (template, error) {
	data, err := r.stored(ctx, set, name)
	if err != nil {
		return template{}, err
	}
	if data == nil {
		lack.Message = fmt.Sprintf("ControllerRevision %s is missing or was replaced. %s", name, lack.Message)
		return template{}, &waitError{problem: lack, after: refused}
	}
	var out template
	if err := json.Unmarshal(data, &out); err != nil {
		return template{}, fmt.Errorf("decoding ControllerRevision %s/%s: %w", set.Namespace, name, err)
	}
	out.hash = templateHash(set, data)
	return out, nil
}

// hasPrevious reports whether a template other than that of the spec has worked.
func (p *pass) hasPrevious() bool {
	return p.spec != nil && p.current != "" && p.current != p.spec.name
}

// recorded returns the record of the rollout of the spec's template; nil if there is none.
func (p *pass) recorded() *v1beta1.RolloutStatus {
	if p.rollout == nil || p.rollout.Revision != p.spec.name {
		return nil
	}
	return p.rollout
}

// recognize renames the records of the spec's template to its present name. Another version of Modelberth may have
// encoded, and so named, the same template differently. Without the new name, a failed template would be tried again
// after an upgrade, and a working one would count as new.
func (r *Reconciler) recognize(ctx context.Context, p *pass) error {
	if !p.hasPrevious() || p.recorded() != nil {
		return nil
	}
	names := []*string{&p.current}
	if p.rollout != nil && p.rollout.FailedTime != nil {
		names = append(names, &p.rollout.Revision)
	}
	for _, name := range names {
		data, err := r.stored(ctx, p.set, *name)
		if err != nil {
			return err
		}
		var t template
		if data == nil || json.Unmarshal(data, &t) != nil { // the form of a later version may be unreadable
			continue
		}
		again, err := revisionOf(p.set, t)
		if err != nil {
			return err
		}
		if again.name == p.spec.name {
			*name = p.spec.name
		}
	}
	return nil
}

// kept returns the names of the templates to store: the current one, and the one whose rollout failed, if any.
func kept(current string, rollout *v1beta1.RolloutStatus) []string {
	out := []string{current}
	if rollout != nil && rollout.FailedTime != nil {
		out = append(out, rollout.Revision)
	}
	return out
}

// stores reports whether the pass changes which templates are stored.
func (p *pass) stores() bool {
	return !slices.Equal(kept(p.current, p.rollout), kept(p.set.Status.CurrentRevision, p.set.Status.Rollout))
}

// ensureRevision stores the template of the spec if the status is about to name it as the current one, or as one that
// failed. It deletes the set's other templates, except the one that the status still names as current.
func (r *Reconciler) ensureRevision(ctx context.Context, p *pass) error {
	if !p.stores() {
		return nil
	}
	wanted := kept(p.current, p.rollout)
	if p.spec != nil && slices.Contains(wanted, p.spec.name) {
		object := &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: p.set.Namespace, Name: p.spec.name,
				Labels: map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy, v1beta1.LabelInferenceSet: p.set.Name},
				OwnerReferences: []metav1.OwnerReference{
					*metav1.NewControllerRef(p.set, v1beta1.GroupVersion().WithKind(v1beta1.InferenceSetKind)),
				},
			},
			Data: runtime.RawExtension{Raw: p.spec.data}, Revision: 1,
		}
		err := r.Client.Create(ctx, object, client.FieldOwner(apply.FieldOwner))
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating ControllerRevision %s/%s: %w", object.Namespace, object.Name, err)
		}
	}
	list := &appsv1.ControllerRevisionList{}
	ours := client.MatchingLabels{v1beta1.LabelManagedBy: v1beta1.ManagedBy, v1beta1.LabelInferenceSet: p.set.Name}
	if err := r.Live.List(ctx, list, client.InNamespace(p.set.Namespace), ours); err != nil {
		return fmt.Errorf("listing the revisions of InferenceSet %s/%s: %w", p.set.Namespace, p.set.Name, err)
	}
	for i := range list.Items {
		object := &list.Items[i]
		isKept := slices.Contains(wanted, object.Name) || object.Name == p.set.Status.CurrentRevision
		if isKept || !metav1.IsControlledBy(object, p.set) {
			continue
		}
		err := r.Client.Delete(ctx, object, client.Preconditions{UID: &object.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting ControllerRevision %s/%s: %w", object.Namespace, object.Name, err)
		}
	}
	return nil
}
