// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/request"
)

// messageLimit keeps what a cloud or an engine says from flooding the status.
const messageLimit = 1024

// finding is one condition to be; an empty status means that it must not be there.
type finding struct {
	kind    string
	status  metav1.ConditionStatus
	reason  string
	message string
}

func (f finding) holds() bool { return f.status == metav1.ConditionTrue }

func yes(kind, reason, message string) finding {
	return finding{kind, metav1.ConditionTrue, reason, message}
}

func no(kind, reason, message string) finding {
	return finding{kind, metav1.ConditionFalse, reason, message}
}

func absent(kind string) finding { return finding{kind: kind} }

// findings are all conditions after a pass that ended with err.
func (s *scope) findings(err error) []finding {
	if s.isDeleting() {
		message := "releasing the machines"
		if err != nil && !apierrors.IsConflict(err) {
			message = root(err).Error()
		}
		return []finding{
			yes(v1beta1.ConditionWorkspaceDeleting, v1beta1.ReasonWorkspaceDeleted, message),
			no(v1beta1.ConditionReady, v1beta1.ReasonWorkspaceDeleted, message),
		}
	}
	planned := s.plannedFinding(err)
	claims, nodes, resource := s.machineFindings(err)
	inference := s.inferenceFinding()
	ready := s.readyFinding(err, planned, resource, inference)
	succeeded := yes(v1beta1.ConditionWorkspaceSucceeded, v1beta1.ReasonWorkspaceSucceeded, "the model answers")
	stall := absent(v1beta1.ConditionStalled)
	if !ready.holds() {
		succeeded = no(v1beta1.ConditionWorkspaceSucceeded, v1beta1.ReasonWorkspacePending, ready.message)
	}
	if stalled := s.stalled(err); stalled != nil && !ready.holds() { // where it is Ready, ResourceReady says what is wrong
		stall = yes(v1beta1.ConditionStalled, stalled.reason, stalled.message)
		succeeded.reason = v1beta1.ReasonWorkspaceFailed
	}
	return []finding{planned, claims, nodes, resource, inference, succeeded, ready, stall}
}

func (s *scope) plannedFinding(err error) finding {
	switch {
	case s.planErr != nil:
		return no(v1beta1.ConditionPlanned, s.planErr.reason, s.planErr.message)
	case s.revision != nil:
		return yes(v1beta1.ConditionPlanned, v1beta1.ReasonPlanAccepted, planMessage(s.revision))
	case err != nil && !isWaiting(err):
		return finding{v1beta1.ConditionPlanned, metav1.ConditionUnknown, v1beta1.ReasonReconcileFailed, root(err).Error()}
	case err != nil:
		return finding{v1beta1.ConditionPlanned, metav1.ConditionUnknown, v1beta1.ReasonProgressing, root(err).Error()}
	default:
		return finding{v1beta1.ConditionPlanned, metav1.ConditionUnknown, v1beta1.ReasonProgressing, "planning"}
	}
}

// machineFindings are NodeClaimReady, NodesReady and ResourceReady.
func (s *scope) machineFindings(err error) (claims, nodes, resource finding) {
	claims = absent(v1beta1.ConditionNodeClaimReady)
	nodes = no(v1beta1.ConditionNodesReady, v1beta1.ReasonNodeNotReady, "no machine yet")
	switch {
	case s.revision == nil && s.planErr != nil:
		nodes.message = "no machine is bought: " + s.planErr.message
	case s.ws.Suspend:
		nodes.reason, nodes.message = v1beta1.ReasonSuspended, s.suspendedMessage("buy machines")
	case s.isOnNodes():
		nodes = s.onNodesFinding()
	case s.capacityErr != nil:
		claims = no(v1beta1.ConditionNodeClaimReady, reasonOf(s.capacityErr), root(s.capacityErr).Error())
		nodes.message = claims.message
	case s.revision != nil && s.stalled(err) != nil && len(s.machines) == 0:
		nodes.message = "no machine is bought: " + s.stalled(err).message
	case s.revision != nil:
		claims, nodes = s.claimFinding(), s.nodeFinding()
	}
	if nodes.holds() {
		return claims, nodes, yes(v1beta1.ConditionResourceReady, v1beta1.ReasonResourceSuccess, nodes.message)
	}
	resource = no(v1beta1.ConditionResourceReady, nodes.reason, nodes.message)
	if len(s.machines) == 0 && !s.isOnNodes() && nodes.reason == v1beta1.ReasonNodeNotReady {
		resource.reason = v1beta1.ReasonResourceNotReady
	}
	if claims.status == metav1.ConditionFalse {
		resource.reason, resource.message = claims.reason, claims.message
	}
	resource.message += s.meanwhile()
	return claims, nodes, resource
}

// claimFinding says how far the machines are that were asked for. Where one is held up, the
// provisioner's own reason and words come through.
func (s *scope) claimFinding() finding {
	held, want := s.servingMachines(), s.revision.Plan.Nodes
	for _, machine := range held {
		if machine.Initialized {
			continue
		}
		reason, message := machine.Reason, machine.Message
		if reason != "" && refusal.IsNeutral(reason) { // as it is from when the machine is asked for, whoever has looked at it
			reason, message = "", ""
		}
		reason = cmp.Or(reason, v1beta1.ReasonNodeClaimNotReady)
		stage := "being launched"
		if machine.Registered {
			stage = "registered, not initialised yet"
		} else if machine.Launched {
			stage = "launched, not registered yet"
		}
		text := fmt.Sprintf("machine %s (%s) is %s", machine.Name, machine.InstanceType, stage)
		switch {
		case s.isBeingRefused():
			text += fmt.Sprintf("; refused so far (%s: %s); the attempt times out at %s",
				s.verdict.Cause, s.verdict.Message, clockTime(s.verdict.LookAgain))
		case message != "":
			text += ": " + message
		}
		return no(v1beta1.ConditionNodeClaimReady, reason, text)
	}
	if len(held) < want {
		return no(v1beta1.ConditionNodeClaimReady, v1beta1.ReasonNodeClaimNotReady,
			fmt.Sprintf("waiting for %d of %d machines of type %s", want-len(held), want, s.revision.Plan.InstanceType))
	}
	return yes(v1beta1.ConditionNodeClaimReady, v1beta1.ReasonNodeClaimsReady,
		fmt.Sprintf("%d of %d machines initialised", want, want))
}

// isBeingRefused says that words of a refusal were heard which may still turn out to be passing.
func (s *scope) isBeingRefused() bool {
	return s.verdict.Cause != refusal.None && !s.verdict.Final && !s.verdict.LookAgain.IsZero()
}

func (s *scope) nodeFinding() finding {
	plan := &s.revision.Plan
	ready := 0
	for _, machine := range s.servingMachines() {
		switch {
		case machine.NodeName == "" || !machine.Initialized:
			continue
		case !machine.NodeReady:
			return s.notReady(machine.NodeName)
		case machine.GPUs < plan.GPUsPerNode:
			return no(v1beta1.ConditionNodesReady, v1beta1.ReasonNodePluginsNotReady,
				fmt.Sprintf("node %s shows %d of %d %s: is the device plugin running there?",
					machine.NodeName, machine.GPUs, plan.GPUsPerNode, plan.GPUResource))
		}
		ready++
	}
	message := fmt.Sprintf("%d of %d nodes ready", ready, plan.Nodes)
	if ready < plan.Nodes {
		return no(v1beta1.ConditionNodesReady, v1beta1.ReasonNodeNotReady, message)
	}
	return yes(v1beta1.ConditionNodesReady, v1beta1.ReasonNodesReady, message)
}

func (s *scope) inferenceFinding() finding {
	if s.revision == nil || s.ws.Suspend {
		return no(v1beta1.ConditionInferenceReady, v1beta1.ReasonInferencePending, "the inference server has not started")
	}
	if s.statefulSet == nil {
		return no(v1beta1.ConditionInferenceReady, v1beta1.ReasonInferencePending, diagnosis.WaitsForMachines)
	}
	if failed, found := s.groupFinding(); found {
		return failed
	}
	seen := diagnosis.Inference(s.diagnosed())
	if seen.Ready && !s.isCurrent() {
		return no(v1beta1.ConditionInferenceReady, v1beta1.ReasonInferencePending,
			"the pods of the former revision are being replaced")
	}
	if seen.Ready {
		return yes(v1beta1.ConditionInferenceReady, seen.Reason, seen.Message)
	}
	if s.isComing() {
		return no(v1beta1.ConditionInferenceReady, v1beta1.ReasonInferencePending, diagnosis.WaitsForMachines)
	}
	if s.isGroup() && s.group.Failure != "" {
		seen.Message += "; it restarts because " + s.group.Failure
	}
	if seen.Reason != v1beta1.ReasonInferencePending {
		seen.Message += s.wayBack()
	}
	return no(v1beta1.ConditionInferenceReady, seen.Reason, seen.Message)
}

// isComing says whether no pod is on a machine, and those of the open attempt were not usable when this Workspace was
// last told of: what the scheduler says of its pods is about what there was before.
func (s *scope) isComing() bool {
	open := s.openAttempt()
	isPlaced := slices.ContainsFunc(s.pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName != "" })
	if s.isOnNodes() || isPlaced || open == nil {
		return false
	}
	return !slices.ContainsFunc(s.ws.Status.Attempts, func(a v1beta1.Attempt) bool {
		return a.Number == open.Number && a.ReadyTime != nil
	})
}

// diagnosed is what there is to see of the pods.
func (s *scope) diagnosed() diagnosis.Input {
	in := diagnosis.Input{Pods: s.pods, Nodes: s.nodes, Words: s.words, Warnings: s.warnings}
	if runs := s.running(); runs != nil {
		in.Want, in.Plan = runs.Plan.Nodes, &runs.Plan
	}
	return in
}

// isCurrent says whether the pods are those of the StatefulSet as it is to be.
func (s *scope) isCurrent() bool {
	return !s.rolling && (!s.isGroup() || s.workers != nil) && s.isRolledOut()
}

// isRolledOut says whether the pods are those of the sets as they were read.
func (s *scope) isRolledOut() bool {
	for _, set := range s.sets() {
		if set.Status.ObservedGeneration != set.Generation {
			return false
		}
	}
	return !slices.ContainsFunc(s.pods, func(pod corev1.Pod) bool {
		return !slices.ContainsFunc(s.sets(), func(set *appsv1.StatefulSet) bool {
			return pod.Labels[appsv1.ControllerRevisionHashLabelKey] == set.Status.UpdateRevision
		})
	})
}

// suspendedMessage says what is still on its way out, or else what to do.
func (s *scope) suspendedMessage(why string) string {
	if len(s.machines) > 0 {
		return fmt.Sprintf("the Workspace is suspended: %d machine(s) are being released", len(s.machines))
	}
	return "the Workspace is suspended: set suspend to false to " + why
}

// readyFinding sums up. An error of this pass does not make a model that answers unready.
func (s *scope) readyFinding(err error, planned, resource, inference finding) finding {
	switch {
	case s.ws.Suspend:
		return no(v1beta1.ConditionReady, v1beta1.ReasonSuspended, s.suspendedMessage("serve"))
	case s.isNameTaken(err):
		return no(v1beta1.ConditionReady, s.stalled(err).reason, s.stalled(err).message)
	case !planned.holds():
		return no(v1beta1.ConditionReady, planned.reason, planned.message)
	case inference.holds() && (resource.holds() || s.servesSpec()) && s.isReachable():
		return yes(v1beta1.ConditionReady, v1beta1.ReasonServing,
			fmt.Sprintf("answers at http://%s.%s.svc/v1", s.ws.Name, s.ws.Namespace))
	default:
		return s.unreadyFinding(err, resource, inference)
	}
}

// unreadyFinding says what a model that has a plan lacks until it answers: first what went wrong, then what comes first.
func (s *scope) unreadyFinding(err error, resource, inference finding) finding {
	switch {
	case s.stalled(err) != nil:
		return no(v1beta1.ConditionReady, s.stalled(err).reason, s.stalled(err).message)
	case err != nil && !isWaiting(err) && !apierrors.IsConflict(err):
		return no(v1beta1.ConditionReady, v1beta1.ReasonReconcileFailed, root(err).Error())
	case isWaiting(err) && s.capacityErr == nil:
		return no(v1beta1.ConditionReady, v1beta1.ReasonProgressing, root(err).Error())
	case !resource.holds():
		return no(v1beta1.ConditionReady, resource.reason, resource.message)
	case inference.holds():
		return no(v1beta1.ConditionReady, v1beta1.ReasonProgressing,
			fmt.Sprintf("the inference server answers; creating Service %s/%s", s.ws.Namespace, s.ws.Name))
	default:
		return no(v1beta1.ConditionReady, inference.reason, inference.message)
	}
}

// isReachable says whether there is a Service that leads to the model.
func (s *scope) isReachable() bool { return s.named || s.ws.Status.Endpoint != nil }

// workerNodes are the names of the nodes in use, sorted.
func (s *scope) workerNodes() []string {
	var names []string
	if s.isOnNodes() {
		for _, name := range s.revision.Plan.NodeNames {
			if s.node(name) != nil {
				names = append(names, name)
			}
		}
		return names
	}
	for _, machine := range s.heldMachines() {
		if machine.NodeName != "" {
			names = append(names, machine.NodeName)
		}
	}
	slices.Sort(names)
	return names
}

// isNameTaken says that the endpoint's name leads to somebody else.
func (s *scope) isNameTaken(err error) bool {
	stalled := s.stalled(err)
	return stalled != nil && stalled.reason == v1beta1.ReasonNameTaken
}

// root is the message for users within an error; the chain around it is for logs.
func root(err error) error {
	var stalled *stalledError
	var waiting *waitingError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &stalled):
		return errors.New(stalled.message)
	case errors.As(err, &waiting):
		return waiting
	case errors.As(err, &status):
		return errors.New(status.Status().Message)
	default:
		return err
	}
}

func reasonOf(err error) string {
	switch stalled, ok := errors.AsType[*stalledError](err); {
	case ok:
		return stalled.reason
	case isWaiting(err):
		waiting, _ := errors.AsType[*waitingError](err)
		return cmp.Or(waiting.reason, v1beta1.ReasonNodeClaimNotReady)
	default:
		return v1beta1.ReasonReconcileFailed
	}
}

func isWaiting(err error) bool {
	_, waiting := errors.AsType[*waitingError](err)
	return waiting
}

// conditionSetter writes findings into a status.
type conditionSetter struct {
	status     *v1beta1.WorkspaceStatus
	generation int64
	now        metav1.Time
}

func (c conditionSetter) all(findings []finding) {
	for _, f := range findings {
		if f.status == "" {
			meta.RemoveStatusCondition(&c.status.Conditions, f.kind)
			continue
		}
		message := request.Shorten(f.message, messageLimit)
		condition := metav1.Condition{
			Type: f.kind, Status: f.status, Reason: f.reason, Message: message, ObservedGeneration: c.generation,
		}
		if old := find(c.status.Conditions, f.kind); old == nil || old.Status != f.status {
			condition.LastTransitionTime = c.now
		}
		meta.SetStatusCondition(&c.status.Conditions, condition)
	}
}

func (c conditionSetter) isTrue(kind string) bool { return isTrue(c.status.Conditions, kind) }

func isTrue(conditions []metav1.Condition, kind string) bool {
	return meta.IsStatusConditionTrue(conditions, kind)
}

func find(conditions []metav1.Condition, kind string) *metav1.Condition {
	return meta.FindStatusCondition(conditions, kind)
}
