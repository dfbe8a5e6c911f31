// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/request"
)

// report writes what the pass saw and did as one status patch, if anything changed, and publishes
// the events that it makes true.
func (r *Reconciler) report(ctx context.Context, s *scope, err error) error {
	if err == nil && s.hasJustBegun() && r.waiting.isBusy() {
		r.unsaid.keep(s.ws.UID, untold{attempts: cloneAttempts(s.attempts), events: s.happened()})
		s.lookAgain(shortestLook) // after those that wait
		return nil
	}
	before, now := s.ws.Status, r.Clock.Now()
	status, events := s.status(err, metav1.NewTime(now))
	isNews := !equality.Semantic.DeepEqual(before, status)
	// What happened in this pass is not seen again by the next one; what conditions tell is, but waits only where many do.
	isCrowded, passing := r.unsaid.isCrowded(now), events
	if isCrowded {
		passing = s.happened()
	}
	mayWait := isNews && err == nil && s.capacityErr == nil && len(passing) == 0 && isProgress(&before, &status, isCrowded)
	if wait := r.unsaid.hold(s.ws.UID, mayWait, now); wait > 0 {
		s.lookAgain(wait)
		return nil
	}
	if isNews {
		former := s.ws.DeepCopy()
		s.ws.Status = status
		if err := r.patchStatus(ctx, former, s.ws); err != nil {
			r.learnUnanswered(err, asker(s.ws), before.Attempts, status.Attempts)
			return fmt.Errorf("patching status of workspace %s/%s: %w", s.ws.Namespace, s.ws.Name, err)
		}
	}
	r.awaitFigures(s)
	r.emit(s, events)
	r.unsaid.drop(s.ws.UID)
	r.noteAttempts(asker(s.ws), before.Attempts, status.Attempts)
	r.Metrics.waste(s)
	return nil
}

// hasJustBegun says that this pass has asked for all of the first machines of a Workspace that nothing is told of yet.
// The next one may tell so: others may wait to ask, too, and a status takes an API server longer than all that is
// written before machines are asked for (docs/benchmarks.md).
func (s *scope) hasJustBegun() bool {
	return s.isNew && len(s.ws.Status.Conditions) == 0 && len(s.ws.Status.Attempts) == 0 &&
		s.revision != nil && len(s.created) == s.revision.Plan.Nodes && len(s.knownMachines()) == len(s.created)
}

// patchStatus writes the status of a Workspace over that of the one that was read, from which it was computed: a newer
// one is not overwritten.
func (r *Reconciler) patchStatus(ctx context.Context, read, ws *v1beta1.Workspace) error {
	patch := client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{})
	return r.past.write(ws, func() error { return r.Client.Status().Patch(ctx, ws, patch) })
}

// event is something that happened.
type event struct {
	warning bool
	reason  string
	message string
}

// status is what there is to say after a pass that ended with err, and the events that go with it.
// It is pure: facts, decisions and the time are in, and the same in gives the same out.
func (s *scope) status(err error, now metav1.Time) (v1beta1.WorkspaceStatus, []event) {
	status := *s.ws.Status.DeepCopy()
	if len(s.kaito) > 0 && s.stalled(err) != nil {
		return s.keptStatus(s.stalled(err), now)
	}
	if s.planned || s.isDeleting() {
		status.ObservedGeneration = s.ws.Generation
	}
	status.Attempts = cloneAttempts(s.attempts)
	status.WorkerNodes = s.workerNodes()
	if s.revision != nil && s.planned { // else it is only what goes on: the current spec may have another one
		status.Plan = request.Status(&s.revision.Plan, s.revision.Name)
		status.TargetNodeCount = int32(s.revision.Plan.Nodes)
	}
	if s.engine != nil {
		status.Engine = s.engine
	}
	set := conditionSetter{status: &status, generation: status.ObservedGeneration, now: now}
	set.all(s.findings(err))
	if set.isTrue(v1beta1.ConditionInferenceReady) || s.isNameTaken(err) {
		status.Endpoint = s.endpoint(err)
	}
	if s.revision != nil && set.isTrue(v1beta1.ConditionReady) {
		status.LatestReadyRevision = s.running().Name
	}
	status.State = nextState(s.ws.Status.State, set.isTrue(v1beta1.ConditionReady))
	status.Startup = startup(s, &status, now)
	events := append(eventsOf(&s.before, &status), s.happened()...)
	return status, events
}

// endpoint is where the model answers, from its first answer on and as long as its name is not somebody else's.
func (s *scope) endpoint(err error) *v1beta1.Endpoint {
	switch {
	case s.isNameTaken(err):
		return nil
	case !s.named || s.revision == nil:
		return s.ws.Status.Endpoint
	}
	return &v1beta1.Endpoint{
		URL:    fmt.Sprintf("http://%s.%s.svc", s.ws.Name, s.ws.Namespace),
		Models: slices.Clone(s.running().ServedNames), // what is sent is read back into it
	}
}

// nextState is Pending until the first answer, then Ready or NotReady.
func nextState(previous v1beta1.WorkspaceState, ready bool) v1beta1.WorkspaceState {
	switch {
	case ready:
		return v1beta1.StateReady
	case previous == v1beta1.StateReady || previous == v1beta1.StateNotReady:
		return v1beta1.StateNotReady
	default:
		return v1beta1.StatePending
	}
}

// stalled returns the reason that the user must act on, or nil.
func (s *scope) stalled(err error) *stalledError {
	for _, problem := range []error{err, s.capacityErr} {
		if stalled, ok := errors.AsType[*stalledError](problem); ok {
			return stalled
		}
	}
	return s.planErr
}

// eventsOf tells the changes between two statuses that a person wants to read in order.
func eventsOf(before, after *v1beta1.WorkspaceStatus) []event {
	var events []event
	for _, kind := range []string{
		v1beta1.ConditionPlanned, v1beta1.ConditionResourceReady, v1beta1.ConditionInferenceReady, v1beta1.ConditionStalled,
	} {
		was, is := find(before.Conditions, kind), find(after.Conditions, kind)
		if is == nil || (was != nil && was.Status == is.Status && was.Reason == is.Reason) {
			continue
		}
		bad := is.Status == metav1.ConditionFalse && was != nil && was.Status == metav1.ConditionTrue
		stalled := kind == v1beta1.ConditionStalled
		if is.Status == metav1.ConditionTrue || bad || stalled {
			events = append(events, event{warning: bad || stalled, reason: is.Reason, message: is.Message})
		}
	}
	return events
}

// refusals tells which attempts ended between two statuses, other than by our own will.
func refusals(before, after []v1beta1.Attempt) []event {
	var events []event
	for i := range after {
		a := &after[i]
		isTold := refusal.Cause(a.Reason).NeedsPerson() // by Stalled
		if a.Reason == "" || a.Reason == reasonReleased || isTold || hasEnded(before, a.Number) {
			continue
		}
		message := fmt.Sprintf("attempt %d, %s: %s", a.Number, a.InstanceType, a.Message)
		if a.Fix != "" {
			message += "; " + a.Fix
		}
		events = append(events, event{warning: true, reason: a.Reason, message: message})
	}
	return append(events, losses(before, after)...)
}

// happened tells what became of attempts in this pass, but for what was told when it was written down.
func (s *scope) happened() []event {
	events := slices.Concat(s.untold, refusals(s.ws.Status.Attempts, s.attempts), s.groupEvents())
	if s.fellBack != "" {
		message := fmt.Sprintf("%s, instead of %s", s.revision.Plan.Summary(), s.fellBack)
		events = append(events, event{reason: eventFallback, message: message})
	}
	if s.recreates != "" {
		events = append(events, event{reason: eventRecreating, message: s.recreates})
	}
	if len(s.created) > 0 {
		var names []string
		for _, machine := range s.created {
			names = append(names, machine.Name)
		}
		events = append(events, event{
			reason: eventCreated, message: fmt.Sprintf("asked for %s: %v", s.lastAttempt().InstanceType, names),
		})
	}
	if s.exposed != "" {
		events = append(events, event{warning: true, reason: eventExposed, message: s.exposed})
	}
	return events
}

// Reasons of events that are no conditions.
const (
	eventCreated  = "NodeClaimCreated"
	eventFallback = "FallingBack"
	// eventRecreating is of machines that are let go before others are got in their place.
	eventRecreating = "Recreating"
	// eventExposed is of machines whose metadata pods can read.
	eventExposed = "MetadataExposed"
)

// hasEnded says whether the attempt of that number had ended.
func hasEnded(attempts []v1beta1.Attempt, number int32) bool {
	return slices.ContainsFunc(attempts, func(a v1beta1.Attempt) bool { return a.Number == number && a.Reason != "" })
}
