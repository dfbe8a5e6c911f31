// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// HiddenWords are Karpenter's words about a pool without an offer.
const HiddenWords = "NodePool requirements filtered out all compatible available instance types"

// pools is Karpenter's maker of NodeClaims from NodePools, and the garbage collector after a deleted pool. It makes a
// lost claim again at once, as Karpenter does for a static pool, and for a dynamic one while its pods are pending.
type pools struct {
	client client.Client
	live   client.Reader
	// karpenter has the script.
	karpenter *Karpenter
}

// SetupNodePools registers the stand-in with a manager.
func (k *Karpenter) SetupNodePools(mgr manager.Manager) error {
	skip := true
	byClaim := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		pool := object.GetLabels()[karpv1.NodePoolLabelKey]
		if pool == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pool}}}
	})
	all := forAll(mgr, func() client.ObjectList { return &karpv1.NodePoolList{} })
	return ctrl.NewControllerManagedBy(mgr).Named("sim-pools").
		WithOptions(controller.Options{SkipNameValidation: &skip}).
		For(&karpv1.NodePool{}).Watches(&karpv1.NodeClaim{}, byClaim).Watches(&corev1.Pod{}, all).
		Complete(&pools{client: mgr.GetClient(), live: mgr.GetAPIReader(), karpenter: k})
}

// Reconcile makes a pool ready and as many claims as it is to have.
func (p *pools) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	claims := &karpv1.NodeClaimList{}
	if err := p.live.List(ctx, claims, client.MatchingLabels{karpv1.NodePoolLabelKey: request.Name}); err != nil {
		return ctrl.Result{}, fmt.Errorf("simulated pools: %w", err)
	}
	pool := &karpv1.NodePool{}
	err := p.live.Get(ctx, request.NamespacedName, pool)
	if apierrors.IsNotFound(err) {
		return againAfterRace(p.collect(ctx, claims.Items))
	}
	if err != nil || !pool.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, err
	}
	if !pool.StatusConditions().Root().IsTrue() {
		pool.StatusConditions().SetTrue(karpv1.ConditionTypeValidationSucceeded)
		pool.StatusConditions().SetTrue(karpv1.ConditionTypeNodeClassReady)
		pool.StatusConditions().SetTrue(karpv1.ConditionTypeNodeRegistrationHealthy)
		return againAfterRace(p.client.Status().Update(ctx, pool))
	}
	wanted, requests, err := p.wanted(ctx, pool)
	if err != nil {
		return ctrl.Result{}, err
	}
	if limit, isLimited := pool.Spec.Limits["nodes"]; isLimited {
		wanted = min(wanted, int(limit.Value()))
	}
	lacks := wanted - len(claims.Items)
	switch behaviour := p.karpenter.behaviour(instanceType(pool.Spec.Template.ToNodeClaim())); {
	case behaviour == Ignored:
		return ctrl.Result{}, nil
	case behaviour == Hidden && lacks > 0:
		return ctrl.Result{}, p.tell(ctx, pool)
	}
	for range lacks {
		if err := p.client.Create(ctx, claimFor(pool, requests)); err != nil {
			return againAfterRace(err)
		}
	}
	return ctrl.Result{}, nil
}

// tell reports the lack of offers for a pool, once, as Karpenter does.
func (p *pools) tell(ctx context.Context, pool *karpv1.NodePool) error {
	now := metav1.Now()
	err := p.client.Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: pool.Name + ".hidden"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "karpenter.sh/v1", Kind: "NodePool", Name: pool.Name, UID: pool.UID},
		Reason:         "NoCompatibleInstanceTypes", Message: HiddenWords, Type: corev1.EventTypeWarning,
		Source: corev1.EventSource{Component: "karpenter"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	})
	return client.IgnoreAlreadyExists(err)
}

// wanted is how many machines a pool is to have: its replicas, or as many as there are pods for it.
func (p *pools) wanted(ctx context.Context, pool *karpv1.NodePool) (int, corev1.ResourceList, error) {
	if pool.Spec.Replicas != nil {
		return int(*pool.Spec.Replicas), nil, nil
	}
	pods := &corev1.PodList{}
	if err := p.live.List(ctx, pods); err != nil {
		return 0, nil, err
	}
	count, gpus := 0, int64(0)
	for i := range pods.Items {
		selector := pods.Items[i].Spec.NodeSelector
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(labels.Set(pool.Spec.Template.Labels)) {
			continue
		}
		count++
		gpus = max(gpus, gpusOf(&pods.Items[i]))
	}
	return count, corev1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)}, nil
}

// claimFor is a claim as Karpenter makes it of a pool: one for a static pool requests nothing.
func claimFor(pool *karpv1.NodePool, requests corev1.ResourceList) *karpv1.NodeClaim {
	claim := pool.Spec.Template.ToNodeClaim()
	claim.GenerateName = pool.Name + "-"
	claim.Labels = maps.Clone(claim.Labels)
	claim.Labels[karpv1.NodePoolLabelKey] = pool.Name
	claim.Spec.Resources.Requests = requests
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "karpenter.sh/v1", Kind: "NodePool", Name: pool.Name, UID: pool.UID}}
	return claim
}

func (p *pools) collect(ctx context.Context, claims []karpv1.NodeClaim) error {
	for i := range claims {
		isOwned := slices.ContainsFunc(claims[i].OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.Kind == "NodePool" })
		if !isOwned {
			continue // gpu-provisioner's claims have the label of a pool that never existed
		}
		if err := client.IgnoreNotFound(p.client.Delete(ctx, &claims[i])); err != nil {
			return err
		}
	}
	return nil
}
