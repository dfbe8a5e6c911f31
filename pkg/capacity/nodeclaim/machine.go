// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaim

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// MachineOf returns the machine of a claim. The fields about its node are zero.
func MachineOf(claim *karpv1.NodeClaim) capacity.Machine {
	conditions := claim.StatusConditions()
	machine := capacity.Machine{
		Name:         claim.Name,
		UID:          claim.UID,
		Ordinal:      -1,
		InstanceType: requirementValue(claim, corev1.LabelInstanceTypeStable),
		Zone:         claim.Labels[corev1.LabelTopologyZone],
		CapacityType: capacityTypeOf(claim),
		Launched:     isTrue(conditions, karpv1.ConditionTypeLaunched),
		Registered:   isTrue(conditions, karpv1.ConditionTypeRegistered),
		Initialized:  isTrue(conditions, karpv1.ConditionTypeInitialized),
		Deleting:     !claim.DeletionTimestamp.IsZero(),
		CreatedAt:    claim.CreationTimestamp.Time,
		ProviderID:   claim.Status.ProviderID,
		NodeName:     claim.Status.NodeName,
		HourlyPrice:  PriceOf(claim.Annotations),
		Dedicated:    slices.ContainsFunc(claim.Spec.Taints, keepsOthersAway),
		Words: capacity.Words{
			Launched:    words(conditions, karpv1.ConditionTypeLaunched),
			Registered:  words(conditions, karpv1.ConditionTypeRegistered),
			Initialized: words(conditions, karpv1.ConditionTypeInitialized),
		},
	}
	if machine.Deleting {
		machine.DeletingSince = claim.DeletionTimestamp.Time
	}
	if ref := claim.Spec.NodeClassRef; ref != nil {
		machine.NodeClass = v1beta1.NodeClassReference{Group: ref.Group, Kind: ref.Kind, Name: ref.Name}
	}
	if ordinal, err := strconv.Atoi(claim.Labels[v1beta1.LabelMachineOrdinal]); err == nil {
		machine.Ordinal = ordinal
	}
	if attempt, err := strconv.ParseInt(claim.Labels[v1beta1.LabelMachineAttempt], 10, 32); err == nil {
		machine.Attempt = int32(attempt)
	}
	stages := []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized}
	for _, stage := range stages {
		if isTrue(conditions, stage) {
			continue
		}
		if condition := conditions.Get(stage); condition != nil {
			machine.Reason, machine.Message = condition.Reason, condition.Message
		}
		break
	}
	return machine
}

func keepsOthersAway(taint corev1.Taint) bool {
	return taint.Key == v1beta1.TaintKeyWorkspace && taint.Effect == corev1.TaintEffectNoSchedule
}

// ObserveNode adds the fields about a machine's node.
func (p *Provisioner) ObserveNode(ctx context.Context, machine *capacity.Machine, gpuResource string) error {
	if machine.NodeName == "" {
		return nil
	}
	node := &corev1.Node{}
	err := p.cached.Get(ctx, types.NamespacedName{Name: machine.NodeName}, node)
	if apierrors.IsNotFound(err) {
		return nil // gone, or not in our cache yet: the node gets the claim's labels when it registers
	}
	if err != nil {
		return fmt.Errorf("reading node %q: %w", machine.NodeName, err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			machine.NodeReady = condition.Status == corev1.ConditionTrue
			machine.NodeSince = condition.LastTransitionTime.Time
		}
	}
	quantity := node.Status.Allocatable[corev1.ResourceName(gpuResource)]
	machine.GPUs = int(quantity.Value())
	machine.Fault, machine.GPUFault = nodehealth.Split(node)
	machine.Shortage = nodehealth.Shortage(node, corev1.ResourceName(gpuResource))
	return nil
}

func requirementValue(claim *karpv1.NodeClaim, key string) string {
	for _, requirement := range claim.Spec.Requirements {
		if requirement.Key == key && len(requirement.Values) > 0 {
			return requirement.Values[0]
		}
	}
	return ""
}

func isTrue(conditions status.ConditionSet, stage string) bool {
	condition := conditions.Get(stage)
	return condition != nil && condition.IsTrue()
}

// words returns a condition of a claim.
func words(conditions status.ConditionSet, stage string) refusal.Condition {
	condition := conditions.Get(stage)
	if condition == nil {
		return refusal.Condition{}
	}
	return refusal.Condition{
		Status: refusal.Status(condition.Status), Reason: condition.Reason, Message: condition.Message,
		Since: condition.LastTransitionTime.Time,
	}
}
