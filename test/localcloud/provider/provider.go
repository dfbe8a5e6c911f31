// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package provider is Karpenter's view of the local cloud: it turns NodeClaims into requests for machines and
// refusals into Karpenter's typed errors, as the providers of the large clouds do. It decides the offers for a claim
// and their order. It must not start machines itself.
package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/process"
	"github.com/modelberth/modelberth/test/localcloud/provider/v1alpha1"
	"github.com/modelberth/modelberth/test/localcloud/sku"
)

// Reasons of a claim's Launched condition, the same as in Azure's provider.
const (
	reasonQuota              = "SubscriptionQuotaReached"
	reasonCreateFailed       = "CreateInstanceFailed"
	reasonNodeClassReadiness = "NodeClassReadinessUnknown"
)

// deletionPatience is how long Delete waits to see the machine gone, before it
// leaves the rest to Karpenter's next, later question.
const deletionPatience = 4 * time.Second

// Cloud sells machines.
type Cloud interface {
	Create(context.Context, cloud.Request) (cloud.Machine, error)
	Get(ctx context.Context, id string) (cloud.Machine, error)
	List(context.Context) ([]cloud.Machine, error)
	Delete(ctx context.Context, id string) error
}

// Provider implements cloudprovider.CloudProvider.
type Provider struct {
	kube  client.Reader
	cloud Cloud
	skus  map[string]sku.SKU
	types []*cloudprovider.InstanceType
	// attempts numbers the requests of all claims; it goes on from one process to the next.
	attempts atomic.Int64
}

var _ cloudprovider.CloudProvider = (*Provider)(nil)

// New returns a provider of the given machine types.
func New(kube client.Reader, c Cloud, skus []sku.SKU) *Provider {
	p := &Provider{kube: kube, cloud: c, skus: map[string]sku.SKU{}}
	p.attempts.Store(time.Now().UnixNano())
	for _, s := range skus {
		p.skus[s.Name] = s
		p.types = append(p.types, instanceType(s))
	}
	return p
}

// Name implements cloudprovider.CloudProvider.
func (*Provider) Name() string { return "local" }

// GetSupportedNodeClasses implements cloudprovider.CloudProvider.
func (*Provider) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&v1alpha1.LocalNodeClass{}}
}

// GetInstanceTypes implements cloudprovider.CloudProvider.
func (p *Provider) GetInstanceTypes(context.Context, *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	return p.types, nil
}

// IsDrifted implements cloudprovider.CloudProvider. Machines here never change.
func (*Provider) IsDrifted(context.Context, *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	return "", nil
}

// RepairPolicies implements cloudprovider.CloudProvider, with Azure's tolerance.
func (*Provider) RepairPolicies() []cloudprovider.RepairPolicy {
	return []cloudprovider.RepairPolicy{
		{ConditionType: corev1.NodeReady, ConditionStatus: corev1.ConditionFalse, TolerationDuration: 10 * time.Minute},
		{ConditionType: corev1.NodeReady, ConditionStatus: corev1.ConditionUnknown, TolerationDuration: 10 * time.Minute},
	}
}

// Create implements cloudprovider.CloudProvider.
func (p *Provider) Create(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	if err := p.checkNodeClass(ctx, claim); err != nil {
		return nil, err
	}
	offers, err := offersFor(p.types, claim)
	if err != nil {
		return nil, cloudprovider.NewInsufficientCapacityError(err)
	}
	m, err := p.buy(ctx, claim, offers)
	if err != nil {
		return nil, err
	}
	return p.claimOf(m), nil
}

func (p *Provider) checkNodeClass(ctx context.Context, claim *karpv1.NodeClaim) error {
	name := claim.Spec.NodeClassRef.Name
	class := &v1alpha1.LocalNodeClass{}
	err := p.kube.Get(ctx, types.NamespacedName{Name: name}, class)
	if apierrors.IsNotFound(err) {
		return cloudprovider.NewInsufficientCapacityError(fmt.Errorf("resolving LocalNodeClass %q: %w", name, err))
	}
	if err != nil {
		return fmt.Errorf("reading LocalNodeClass %q: %w", name, err)
	}
	ready := class.StatusConditions().Get(status.ConditionReady)
	if ready.IsFalse() {
		return cloudprovider.NewNodeClassNotReadyError(fmt.Errorf("LocalNodeClass %q is not ready: %s", name, ready.Message))
	}
	if !ready.IsTrue() {
		return cloudprovider.NewCreateError(fmt.Errorf("readiness of LocalNodeClass %q is unknown", name), reasonNodeClassReadiness, "NodeClass readiness is unknown")
	}
	return nil
}

// Get implements cloudprovider.CloudProvider.
func (p *Provider) Get(ctx context.Context, providerID string) (*karpv1.NodeClaim, error) {
	id, err := cloud.ParseProviderID(providerID)
	if err != nil {
		return nil, cloudprovider.NewNodeClaimNotFoundError(err)
	}
	m, err := p.cloud.Get(ctx, id)
	if err != nil {
		return nil, goneOr(err)
	}
	return p.claimOf(m), nil
}

// List implements cloudprovider.CloudProvider.
func (p *Provider) List(ctx context.Context) ([]*karpv1.NodeClaim, error) {
	machines, err := p.cloud.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing machines: %w", err)
	}
	machines = slices.DeleteFunc(machines, func(m cloud.Machine) bool { return m.System })
	claims := make([]*karpv1.NodeClaim, 0, len(machines))
	for _, m := range machines {
		claims = append(claims, p.claimOf(m))
	}
	return claims, nil
}

// Delete implements cloudprovider.CloudProvider. It reports the machine gone as soon as possible: Karpenter asks
// again only after five seconds, and a machine here is gone in less.
func (p *Provider) Delete(ctx context.Context, claim *karpv1.NodeClaim) error {
	id, err := cloud.ParseProviderID(claim.Status.ProviderID)
	if err != nil {
		return cloudprovider.NewNodeClaimNotFoundError(err)
	}
	if err := p.cloud.Delete(ctx, id); err != nil {
		return goneOr(err)
	}
	ctx, cancel := context.WithTimeout(ctx, deletionPatience)
	defer cancel()
	var gone error
	err = process.Await(ctx, "machine "+id+" to end", 50*time.Millisecond, func(ctx context.Context) error {
		_, getErr := p.cloud.Get(ctx, id)
		if gone = goneOr(getErr); cloudprovider.IsNodeClaimNotFoundError(gone) {
			return nil
		}
		return fmt.Errorf("machine %s is still there", id)
	})
	if err != nil {
		return nil // the deletion is under way; Karpenter asks again
	}
	return gone
}

// goneOr turns the cloud's "there is no such machine" into Karpenter's.
func goneOr(err error) error {
	var refused *cloud.Error
	if errors.As(err, &refused) && refused.Code == cloud.CodeNotFound {
		return cloudprovider.NewNodeClaimNotFoundError(refused)
	}
	if err != nil {
		return fmt.Errorf("requesting a machine: %w", err)
	}
	return nil
}
