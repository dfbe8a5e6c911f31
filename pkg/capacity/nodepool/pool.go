// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/workload"
)

// nodesResource is how Karpenter counts machines in a pool's limits.
const nodesResource corev1.ResourceName = "nodes"

// pool returns the NodePool of a request: machines of one type and one capacity type, up to a limit, without
// disruption once they exist.
func (p *Provisioner) pool(req capacity.Request, size int) *karpv1.NodePool {
	claim := p.claims.Spec(req)
	pool := &karpv1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: Name(req.Owner, req.Attempt), Labels: nodeclaim.Labels(req)},
		Spec: karpv1.NodePoolSpec{
			Template: karpv1.NodeClaimTemplate{
				ObjectMeta: karpv1.ObjectMeta{Labels: nodeclaim.Labels(req), Annotations: nodeclaim.Annotations(req)},
				Spec: karpv1.NodeClaimTemplateSpec{
					Requirements: claim.Requirements, Taints: claim.Taints, NodeClassRef: claim.NodeClassRef,
					TerminationGracePeriod: claim.TerminationGracePeriod, ExpireAfter: claim.ExpireAfter,
				},
			},
			// A loaded model is worth more than any saving by emptying, consolidating or renewing a node.
			Disruption: karpv1.Disruption{
				ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty,
				ConsolidateAfter:    karpv1.MustParseNillableDuration(karpv1.Never),
				Budgets:             []karpv1.Budget{{Nodes: "0"}},
			},
			Limits: karpv1.Limits{nodesResource: *resource.NewQuantity(int64(size), resource.DecimalSI)},
		},
	}
	if p.isStatic {
		pool.Spec.Replicas = new(int64(size))
		return pool
	}
	// Karpenter before 1.8 limits resources, not the number of machines.
	if req.GPUs > 0 {
		pool.Spec.Limits[corev1.ResourceName(req.GPUResource)] = *resource.NewQuantity(int64(size*req.GPUs), resource.DecimalSI)
	}
	if !req.Dedicated {
		// Another owner's pod that tolerates the taint of GPU machines would fit, too. With this taint, the scheduler
		// prefers all other nodes for it.
		preference := workload.DedicatedTaint(req.Owner.UID)
		preference.Effect = corev1.TaintEffectPreferNoSchedule
		pool.Spec.Template.Spec.Taints = append(pool.Spec.Template.Spec.Taints, preference)
	}
	return pool
}
