// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// isAgentPool reports whether gpu-provisioner, and not Karpenter, answers a claim.
func isAgentPool(claim *karpv1.NodeClaim) bool {
	ref := claim.Spec.NodeClassRef
	return ref != nil && ref.Group == "kaito.sh" && ref.Kind == "KaitoNodeClass"
}

// agentPoolName matches AKS's valid names of an agent pool.
var agentPoolName = regexp.MustCompile(`^[a-z][a-z0-9]{0,11}$`)

// armQuotaWords are Azure Resource Manager's, as gpu-provisioner passes them on.
const armQuotaWords = `agentPool.BeginCreateOrUpdate for %q failed: ERROR CODE: ErrCode_InsufficientVCPUQuota { "code": ` +
	`"ErrCode_InsufficientVCPUQuota", "message": "Insufficient vcpu quota requested 24, remaining 0 for family standardNCADSA100v4Family ` +
	`for region eastus." }`

// provision follows gpu-provisioner with a claim: it deletes none, however often its creation fails.
func (k *Karpenter) provision(ctx context.Context, claim *karpv1.NodeClaim, behaviour Behaviour) (ctrl.Result, error) {
	if !claim.DeletionTimestamp.IsZero() {
		return againAfterRace(k.terminate(ctx, claim))
	}
	if controllerutil.AddFinalizer(claim, terminationFinalizer) {
		return againAfterRace(k.client.Update(ctx, claim))
	}
	if problem := agentPoolProblem(claim); problem != "" {
		return againAfterRace(k.fail(ctx, claim, problem))
	}
	switch behaviour {
	case Works:
		return againAfterRace(k.advance(ctx, claim, behaviour))
	case Hangs:
		return ctrl.Result{}, nil
	default:
		return againAfterRace(k.fail(ctx, claim, fmt.Sprintf(armQuotaWords, claim.Name)))
	}
}

// agentPoolProblem says why no agent pool can be made of a claim, as gpu-provisioner v0.4.3 says it
// (pkg/providers/instance/instance.go).
func agentPoolProblem(claim *karpv1.NodeClaim) string {
	types := 0
	for _, requirement := range claim.Spec.Requirements {
		if requirement.Key == corev1.LabelInstanceTypeStable {
			types += len(requirement.Values)
		}
	}
	storage := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case !agentPoolName.MatchString(claim.Name):
		return fmt.Sprintf("agentpool name(%s) is invalid, must match regex pattern: %s", claim.Name, agentPoolName)
	case types != 1:
		return fmt.Sprintf("nodeClaim spec should have exactly one instance type, has %d", types)
	case storage.Value() <= 0:
		return fmt.Sprintf("storage request of nodeclaim(%s) should be more than 0", claim.Name)
	default:
		return ""
	}
}

// fail reports a message once, though each try repeats it.
func (k *Karpenter) fail(ctx context.Context, claim *karpv1.NodeClaim, message string) error {
	if claim.StatusConditions().Get(karpv1.ConditionTypeLaunched).Message == message {
		return nil
	}
	claim.StatusConditions().SetUnknownWithReason(karpv1.ConditionTypeLaunched, "LaunchFailed", message)
	return k.client.Status().Update(ctx, claim)
}
