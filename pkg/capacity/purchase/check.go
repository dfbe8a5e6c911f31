// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package purchase

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/admission"
	"github.com/modelberth/modelberth/pkg/capacity/preflight"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/request"
	"github.com/modelberth/modelberth/pkg/revision"
	"github.com/modelberth/modelberth/pkg/workload"
)

// CheckBeside returns an error if the Workspace's own limit forbids the machines of a plan in addition to the serving
// ones.
func (c *Choice) CheckBeside(made *revision.Revision) error {
	held := c.Serving()
	if held == nil {
		return nil
	}
	if c.Machines.AreRetired() {
		return &acquire.RecreateError{Why: "the capacity back end has changed since their purchase"}
	}
	if !c.Surge.IsPossible {
		return &acquire.RecreateError{Why: "the capacity back end cannot hold the machines of two plans"}
	}
	if !c.IsAnswering {
		return &acquire.RecreateError{Why: "the model on them is not answering"}
	}
	budget := c.Budget()
	return budget.Beside(made.Plan.InstanceType, made.Plan.HourlyPrice)
}

// Budget returns the Workspace's limit for machines in addition to the serving ones.
func (c *Choice) Budget() acquire.Budget {
	out := acquire.Budget{Limit: request.MaxHourlyPrice(c.Spec), LimitName: "resource.placement.maxHourlyPrice"}
	if out.Limit <= 0 {
		out.Limit, out.LimitName = c.Limits.MaxHourlyPrice, "this installation's default limit"
	}
	if serving := c.Serving(); serving != nil {
		out.Serving, out.Cost = serving.InstanceType, c.Machines.Price(serving.NodeClaims)
	}
	return out
}

// checkPurchase returns an error if a machine of a plan cannot become useful, before money is spent on it.
func (c *Choice) checkPurchase(ctx context.Context, made *revision.Revision) error {
	purchase := c.Purchase(made)
	// The user's mistakes are reported before the cluster's problems.
	if problem := planning.ZoneProblem(&made.Plan, purchase.NodeClass); problem != "" {
		return progress.Invalid("nothing is bought yet: " + problem)
	}
	purchase.Pods = podDemand(c.Workspace, made, c.Sets, c.Pods)
	return c.Preflight.Check(ctx, purchase)
}

// CheckRoom returns an error if the namespace's rules, such as its ResourceQuotas and LimitRanges, would refuse a plan's
// pods in place of the existing ones. isChecked is false if admission is not checked, or if the rules could not be read.
// The message begins with prefix.
func (c *Choice) CheckRoom(ctx context.Context, made *revision.Revision, prefix string) (isChecked bool, err error) {
	purchase := c.Purchase(made)
	purchase.Pods = podDemand(c.Workspace, made, c.Sets, c.Pods)
	return c.Preflight.CheckNamespace(ctx, purchase, prefix)
}

// Purchase returns a plan's purchase for a Workspace, without its pods.
func (c *Choice) Purchase(made *revision.Revision) preflight.Purchase {
	out := preflight.Purchase{
		Workspace: client.ObjectKeyFromObject(c.Workspace), UID: c.Workspace.UID, NamespaceLabels: c.Namespace.Labels,
		InstanceType: made.Plan.InstanceType, DiskGiB: made.Plan.DiskGiB, NodeClass: c.ClassOf(made.NodeClass),
		ToleratesDedication: made.ToleratesDedication(),
	}
	if made.Plan.MachineGPUs > 0 {
		out.GPUResource = made.Plan.GPUResource
	}
	return out
}

// podDemand returns the pods of a plan, and the existing pods.
func podDemand(ws *v1beta1.Workspace, made *revision.Revision, sets []*appsv1.StatefulSet, pods []corev1.Pod) admission.Demand {
	out := admission.Demand{ExistingSets: len(sets)}
	for _, object := range made.Pods(ws, made.Name, workload.Group{}) {
		if set, ok := object.(*appsv1.StatefulSet); ok {
			out.Sets = append(out.Sets, set)
		}
	}
	for i := range pods {
		if phase := pods[i].Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			out.Pods = append(out.Pods, pods[i])
		}
	}
	return out
}
