// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/progress"
)

// conditions returns all conditions after the pass.
func (p pass) conditions() []metav1.Condition {
	if p.Workspace.IsDeleting {
		message := "releasing the machines"
		if p.err != nil && !apierrors.IsConflict(p.err) {
			message = progress.Message(p.err)
		}
		return []metav1.Condition{
			yes(v1beta1.ConditionWorkspaceDeleting, v1beta1.ReasonWorkspaceDeleted, message),
			no(v1beta1.ConditionReady, v1beta1.ReasonWorkspaceDeleted, message),
		}
	}
	planned := p.planned()
	claims, nodes, resource := p.machines()
	inference := p.inference()
	ready := p.ready(planned, resource, inference)
	succeeded := yes(v1beta1.ConditionWorkspaceSucceeded, v1beta1.ReasonWorkspaceSucceeded, "the model answers")
	stall := absent(v1beta1.ConditionStalled)
	if !holds(ready) {
		succeeded = no(v1beta1.ConditionWorkspaceSucceeded, v1beta1.ReasonWorkspacePending, ready.Message)
	}
	if p.stalled != nil && !holds(ready) { // if it is Ready, ResourceReady reports the problem
		stall = yes(v1beta1.ConditionStalled, p.stalled.Reason, p.stalled.Message)
		succeeded.Reason = v1beta1.ReasonWorkspaceFailed
	}
	return []metav1.Condition{planned, claims, nodes, resource, inference, succeeded, ready, stall}
}

func (p pass) planned() metav1.Condition {
	switch {
	case p.Plan.Err != nil:
		return no(v1beta1.ConditionPlanned, p.Plan.Err.Reason, p.Plan.Err.Message)
	case p.Plan.Plan != nil:
		return yes(v1beta1.ConditionPlanned, v1beta1.ReasonPlanAccepted, p.Plan.Message)
	case p.err != nil && !progress.IsWaiting(p.err):
		return unknown(v1beta1.ConditionPlanned, v1beta1.ReasonReconcileFailed, progress.Message(p.err))
	case p.err != nil:
		return unknown(v1beta1.ConditionPlanned, v1beta1.ReasonProgressing, progress.Message(p.err))
	default:
		return unknown(v1beta1.ConditionPlanned, v1beta1.ReasonProgressing, "planning")
	}
}

// ready returns the summarizing condition Ready. An answering model stays ready despite an error of this pass.
func (p pass) ready(planned, resource, inference metav1.Condition) metav1.Condition {
	switch {
	case p.Workspace.IsSuspended:
		return no(v1beta1.ConditionReady, v1beta1.ReasonSuspended, p.suspendedMessage("serve"))
	case p.isNameTaken():
		return no(v1beta1.ConditionReady, p.stalled.Reason, p.stalled.Message)
	case !holds(planned):
		return no(v1beta1.ConditionReady, planned.Reason, planned.Message)
	case holds(inference) && (holds(resource) || p.Endpoint.ServesSpec) && p.isReachable():
		return yes(v1beta1.ConditionReady, v1beta1.ReasonServing,
			fmt.Sprintf("answers at http://%s.%s.svc/v1", p.Workspace.Name, p.Workspace.Namespace))
	default:
		return p.unready(resource, inference)
	}
}

// isReachable reports whether clients reach the model through its Service. The controller manager adds a pod to the
// Service some time after it is ready. A model that is Ready stays so while its pods answer: an update of the Service's
// endpoints may drop and add them.
func (p pass) isReachable() bool {
	wasReady := meta.IsStatusConditionTrue(p.Stored.Conditions, v1beta1.ConditionReady)
	return (p.Endpoint.HasService || p.Stored.Endpoint != nil) && (wasReady || p.Endpoint.IsReachable)
}

// unready names the obstacle for a model with a plan: an error first, then the next stage.
func (p pass) unready(resource, inference metav1.Condition) metav1.Condition {
	switch {
	case p.stalled != nil:
		return no(v1beta1.ConditionReady, p.stalled.Reason, p.stalled.Message)
	case p.err != nil && !progress.IsWaiting(p.err) && !apierrors.IsConflict(p.err):
		return no(v1beta1.ConditionReady, v1beta1.ReasonReconcileFailed, progress.Message(p.err))
	case progress.IsWaiting(p.err) && p.Attempts.Err == nil:
		return no(v1beta1.ConditionReady, v1beta1.ReasonProgressing, progress.Message(p.err))
	case !holds(resource):
		return no(v1beta1.ConditionReady, resource.Reason, resource.Message)
	case holds(inference) && !p.Endpoint.HasService && p.Stored.Endpoint == nil:
		return no(v1beta1.ConditionReady, v1beta1.ReasonProgressing,
			fmt.Sprintf("the inference server answers; creating Service %s/%s", p.Workspace.Namespace, p.Workspace.Name))
	case holds(inference):
		return no(v1beta1.ConditionReady, v1beta1.ReasonNoEndpoint, fmt.Sprintf("the inference server answers, but no client reaches "+
			"it, because Service %s/%s has no endpoint yet: if this lasts, the cluster's kube-controller-manager does not run",
			p.Workspace.Namespace, p.Workspace.Name))
	default:
		return no(v1beta1.ConditionReady, inference.Reason, inference.Message)
	}
}
