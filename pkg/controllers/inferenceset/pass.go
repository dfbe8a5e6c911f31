// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/comparison"
	"github.com/modelberth/modelberth/pkg/replicas"
	"github.com/modelberth/modelberth/pkg/wording"
)

// usualSettling is how long failures of a new template may be about something else.
const usualSettling = 2 * time.Minute

// pass is one look at a set and its Workspaces, and what follows from it.
type pass struct {
	set      *v1beta1.InferenceSet
	children []*v1beta1.Workspace
	// target is the template that the replicas are to have: the spec's, or after a rollback the previous one.
	target variants
	// spec is the ControllerRevision of the spec's template, which may not exist; nil without a rollback policy.
	spec *revision
	// views are nil before the replicas are observed.
	views    []view
	decision replicas.Decision
	// current and rollout are the new values of these fields of the status.
	current string
	rollout *v1beta1.RolloutStatus
	// hasUpdated: an existing replica got the template in this pass.
	hasUpdated bool
	// canary is the split of the requests between two templates; nil if there is none.
	canary *v1beta1.CanaryStatus
	// compared is the comparison of the two.
	compared compared
	// missing is set if the previous template cannot be read after a rollback: the set only deletes replicas.
	missing *waitError
	// previous is the template of the replicas to restore, and unrestorable the reason why it cannot be read.
	previous     variants
	unrestorable *waitError
	// next is the time of the next pass; zero if an event leads to it.
	next time.Time
}

// newPass returns a pass that changes nothing.
func newPass(set *v1beta1.InferenceSet) *pass {
	return &pass{set: set, current: set.Status.CurrentRevision, rollout: set.Status.Rollout.DeepCopy()}
}

// assess observes a set, decides about its Workspaces, and about its rollout.
func (r *Reconciler) assess(ctx context.Context, set *v1beta1.InferenceSet, children []*v1beta1.Workspace) (*pass, error) {
	p := newPass(set)
	p.children = children
	spec, err := templateOf(set)
	if err != nil {
		return nil, err
	}
	if rollbackOf(set) != nil && set.DeletionTimestamp.IsZero() {
		if p.spec, err = revisionOf(set, spec); err != nil {
			return nil, err
		}
		spec.hash = p.spec.hash
		if err := r.recognize(ctx, p); err != nil {
			return nil, err
		}
	}
	target := spec
	if p.isRolledBack() {
		target, err = r.previous(ctx, set, p.current, problem{
			v1beta1.ReasonRolledBack, "The template in spec.template failed, and the previous template cannot be restored: " +
				"edit spec.template. Until you edit it, the set creates and updates no replica",
		})
	}
	if missing, ok := errors.AsType[*waitError](err); ok {
		p.missing, target, err = missing, spec, nil
	}
	if err != nil {
		return nil, err
	}
	p.target = variantsOf(set, target)
	p.views = p.target.views(set, children, variantsOf(set, spec))
	r.complete(p)
	if err := r.locate(ctx, p.zoning()); err != nil {
		return nil, err
	}
	if err := r.compare(ctx, p); err != nil {
		return nil, err
	}
	p.decision = p.decide()
	if err := r.restore(ctx, p); err != nil {
		return nil, err
	}
	p.canary = p.split()
	p.decideRollout(metav1.NewTime(r.Clock.Now()), r.settling())
	return p, nil
}

func (r *Reconciler) settling() time.Duration { return cmp.Or(r.Settling, usualSettling) }

// decide returns the next steps for the Workspaces of a set; a deleted set deletes all of them.
func (p *pass) decide() replicas.Decision {
	if p.missing != nil {
		return p.shrink()
	}
	if p.set.DeletionTimestamp.IsZero() {
		zones := p.zoning()
		zones.rechoose()
		p.target.retire(p.set.DesiredReplicas(), p.views)
		return replicas.Decide(p.policy(), replicasOf(p.views))
	}
	var out replicas.Decision
	for i := range p.views {
		if !p.views[i].IsLeaving {
			out.Delete = append(out.Delete, p.views[i].Name)
		}
	}
	return out
}

// policy returns the policy for the replicas in this pass.
func (p *pass) policy() replicas.Policy {
	out := policyOf(p.set)
	out.IsRollback = p.isRolledBack()
	out.CanRestore, out.IsHeld = p.hasPrevious(), p.compared.waits
	return out
}

// zoning returns the choice of zones for the replicas in this pass.
func (p *pass) zoning() zoning {
	return zoning{set: p.set, target: p.target.any, policy: p.policy(), children: p.children, views: p.views}
}

// desired returns a replica with the current template and a choice of zones.
func (p *pass) desired(name string, chosen choice) *v1beta1.Workspace {
	return p.target.of(p.isSteady(name)).in(chosen).child(p.set, name)
}

// restore reads the template of the replicas to restore. Without that template, the set does not create them.
func (r *Reconciler) restore(ctx context.Context, p *pass) error {
	if p.decision.Restore == 0 {
		return nil
	}
	lack := "updateStrategy.rollingUpdate.partition requires new Workspaces with the previous template, which cannot be restored: set partition to 0"
	if p.compared.waits {
		lack = "While the templates are compared, new Workspaces get the previous template, which cannot be restored: " +
			"wait for the deadline of the comparison, or remove updateStrategy.rollingUpdate.rollback.comparison"
	}
	previous, err := r.previous(ctx, p.set, p.current, problem{v1beta1.ReasonReplicaBlocked, lack})
	if missing, ok := errors.AsType[*waitError](err); ok {
		p.unrestorable, err = missing, nil
		p.decision.Create -= p.decision.Restore
		p.decision.Restore = 0
	}
	p.previous = variantsOf(p.set, previous)
	return err
}

// split returns the split of the requests between two templates; nil if there is none. It stays during a rollback, so
// that the failed template does not get more requests than before. Without a weight, the router compares the templates
// and splits nothing.
func (p *pass) split() *v1beta1.CanaryStatus {
	if p.spec == nil {
		return nil
	}
	weight := p.set.Spec.UpdateStrategy.RollingUpdate.CanaryWeight
	if policyOf(p.set).Partition == 0 {
		weight = nil
	}
	isCompared := p.hasPrevious() && comparisonOf(p.set) != nil
	hasCanary := slices.ContainsFunc(p.views, func(v view) bool { return !v.IsLeaving && v.isLabelled })
	hasOther := slices.ContainsFunc(p.views, func(v view) bool { return !v.IsLeaving && !v.isUpdated })
	if weight == nil && !isCompared || !hasCanary || !hasOther {
		return nil
	}
	out := &v1beta1.CanaryStatus{TemplateHash: p.spec.hash}
	if weight != nil {
		out.Weight = new(min(max(0, *weight), 100))
	}
	return out
}

// complete adds facts to the views that are not in the Workspaces: their load, and how long they must stay ready.
func (r *Reconciler) complete(p *pass) {
	now, key := r.Clock.Now(), client.ObjectKeyFromObject(p.set)
	for i := range p.views {
		v := &p.views[i]
		if r.Loads != nil {
			v.Load, v.IsLoadKnown = r.Loads.Of(key, p.children[i].UID, now)
		}
		if !v.IsReady {
			continue
		}
		if proven := v.readySince.Add(minReadyOf(p.set)); proven.After(now) {
			p.assessAt(proven)
		} else {
			v.IsProven = true
		}
	}
}

// assessAt requests another pass at a time, unless one comes sooner.
func (p *pass) assessAt(at time.Time) {
	if !at.IsZero() && (p.next.IsZero() || at.Before(p.next)) {
		p.next = at
	}
}

// toMove returns the replicas with a new choice of zones, except those that are updated or deleted anyway.
func (p *pass) toMove() []view {
	return slices.DeleteFunc(slices.Clone(p.views), func(v view) bool {
		return v.rechosen == nil || slices.Contains(p.decision.Delete, v.Name) || slices.Contains(p.decision.Update, v.Name)
	})
}

// isIdle reports whether the pass writes nothing but a status about a rollout that goes on.
func (p *pass) isIdle() bool {
	waits := p.set.DeletionTimestamp.IsZero() || len(p.views) > 0 // else the finalizer goes
	return waits && p.decision.IsIdle() && len(p.toMove()) == 0 && !p.stores()
}

// fails reports whether the rollout fails in this pass.
func (p *pass) fails() bool {
	was := p.set.Status.Rollout
	return p.rollout != nil && p.rollout.FailedTime != nil && (was == nil || !was.FailedTime.Equal(p.rollout.FailedTime))
}

// isRolledBack reports whether the status records the failure of the spec's template.
func (p *pass) isRolledBack() bool {
	return p.spec != nil && p.current != "" && p.recorded() != nil && p.rollout.FailedTime != nil
}

// decideRollout updates the record of the rollout. After a failure, the replicas change only in the next pass, once the
// status holds the failure. So a crash in between cannot lose it.
func (p *pass) decideRollout(now metav1.Time, settling time.Duration) {
	switch {
	case !p.set.DeletionTimestamp.IsZero() || p.isRolledBack():
		return
	case p.spec == nil:
		p.current, p.rollout = "", nil
		return
	case p.isComplete():
		p.current = p.spec.name
	}
	if !p.hasPrevious() {
		p.rollout = nil
		return
	}
	patience := replicas.Patience{Settling: settling, Deadline: deadlineOf(p.set)}
	failure := replicas.Fails(replicasOf(p.views), p.progress(now), now.Time, patience)
	switch {
	case failure.Replica != "":
		p.fail(now, p.failureWords(failure))
	case p.compared.verdict.State == comparison.Worse:
		p.fail(now, fmt.Sprintf("%s serves worse than %s: %s", p.spec.name, p.current, p.compared.verdict.Message))
	default:
		p.assessAt(failure.Next)
	}
}

// fail records the failure of the rollout. Then this pass changes no replica.
func (p *pass) fail(now metav1.Time, why string) {
	p.rollout.FailedTime, p.rollout.Message = &now, wording.Clip(why, mostFailure)
	p.rollout.AvailableReplicas, p.rollout.ProgressTime, p.rollout.RefusedTime, p.rollout.ComparedTime = 0, nil, nil, nil
	p.decision = replicas.Decision{IsRolling: p.decision.IsRolling}
	for i := range p.views {
		p.views[i].rechosen = nil
	}
}

// progress brings the record of a rollout up to date, and returns what it shows.
func (p *pass) progress(now metav1.Time) replicas.Progress {
	if p.recorded() == nil {
		p.rollout = &v1beta1.RolloutStatus{Revision: p.spec.name, StartTime: now}
	}
	if p.compared.endedAt != nil {
		p.rollout.ComparedTime = p.compared.endedAt
	}
	if len(p.decision.Update) > 0 { // new replicas have times of their own
		p.rollout.UpdateTime = &now
	}
	if available := p.available(); available != p.rollout.AvailableReplicas {
		p.rollout.AvailableReplicas, p.rollout.ProgressTime = available, &now
	}
	out := replicas.Progress{Updated: p.rollout.StartTime.Time}
	if p.rollout.UpdateTime != nil {
		out.Updated = p.rollout.UpdateTime.Time
	}
	if p.rollout.ProgressTime != nil {
		out.Changed = p.rollout.ProgressTime.Time
	}
	return out
}

// available returns the number of replicas that have been ready long enough with the template of the spec.
func (p *pass) available() int32 {
	var out int32
	for i := range p.views {
		if v := &p.views[i]; v.isUpdated && !v.IsLeaving && v.IsProven {
			out++
		}
	}
	return out
}

// shrink deletes the replicas above the desired number, and does nothing else. It deletes replicas with the failed
// template before those with the previous one.
func (p *pass) shrink() replicas.Decision {
	for i := range p.views {
		p.views[i].IsCurrent = !p.views[i].isUpdated
	}
	policy := replicas.Policy{Replicas: p.set.DesiredReplicas(), OnDelete: true}
	return replicas.Decision{Delete: replicas.Decide(policy, replicasOf(p.views)).Delete}
}

// isComplete reports whether all replicas are ready with the template of the spec. Replicas without a machine are no
// evidence against the template. While a partition keeps replicas on the previous template, a rollout is never
// complete, even if those replicas are gone.
func (p *pass) isComplete() bool {
	if policy := policyOf(p.set); p.hasPrevious() && policy.Kept() > 0 {
		return false
	}
	ready := 0
	for i := range p.views {
		switch v := &p.views[i]; {
		case v.IsLeaving:
		case v.isUpdated && v.IsReady && v.IsProven:
			ready++
		case !v.isUpdated || !v.LacksMachine:
			return false
		}
	}
	return ready > 0
}

// isSteady reports whether a replica is to keep off spot machines.
func (p *pass) isSteady(name string) bool {
	return slices.ContainsFunc(p.views, func(v view) bool { return v.Name == name && v.IsSteady })
}
