// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaim

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// parkedPrefix begins the names of parked NodePools. parkedLimit is the maximum length of a label's value.
const (
	parkedPrefix = "modelberth-"
	parkedLimit  = 63
)

// parkedTaint is a taint that no pod tolerates: even without its limit, the pool buys nothing.
const parkedTaint = "modelberth.dev/parked"

// parkedName returns the name of the NodePool in the claims of a node class; empty if they name none.
//
// If a claim has no NodePool, Azure's provider waits for the whole creation of its machine. Until then the claim
// has no providerID, and Karpenter neither schedules nor disrupts anything in the cluster. A claim with a pool gets
// its providerID at once. See docs/adr/0008.
func parkedName(class v1beta1.NodeClassReference) string {
	if refusal.ProviderOf(class.Group, class.Kind) != refusal.KarpenterAzure {
		return ""
	}
	name := parkedPrefix + class.Name
	return strings.TrimRight(name[:min(len(name), parkedLimit)], "-.")
}

// ensureParked creates the NodePool for the claims of a node class, once per process. If the pool is deleted later,
// machines continue, and Karpenter logs that the pool is missing.
func (p *Provisioner) ensureParked(ctx context.Context, class v1beta1.NodeClassReference) error {
	name := parkedName(class)
	if name == "" {
		return nil
	}
	if _, isThere := p.parked.Load(name); isThere {
		return nil
	}
	if err := p.cached.Create(ctx, parkedPool(name, class)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating NodePool %q for the NodeClaims: %w", name, err)
	}
	p.parked.Store(name, true)
	return nil
}

// parkedPool returns a NodePool that buys nothing, and never disrupts the claims with its name.
func parkedPool(name string, class v1beta1.NodeClassReference) *karpv1.NodePool {
	return &karpv1.NodePool{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy},
		},
		Spec: karpv1.NodePoolSpec{
			Limits: karpv1.Limits{corev1.ResourceCPU: resource.MustParse("0")},
			Disruption: karpv1.Disruption{
				ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty,
				ConsolidateAfter:    karpv1.MustParseNillableDuration(karpv1.Never),
				// With a termination grace period, Karpenter replaces a drifted node despite do-not-disrupt on its
				// pods.
				Budgets: []karpv1.Budget{{Nodes: "0"}},
			},
			Template: karpv1.NodeClaimTemplate{Spec: karpv1.NodeClaimTemplateSpec{
				NodeClassRef: &karpv1.NodeClassReference{Group: class.Group, Kind: class.Kind, Name: class.Name},
				Requirements: []karpv1.NodeSelectorRequirementWithMinValues{},
				Taints:       []corev1.Taint{{Key: parkedTaint, Effect: corev1.TaintEffectNoSchedule}},
				ExpireAfter:  karpv1.MustParseNillableDuration(karpv1.Never),
			}},
		},
	}
}
