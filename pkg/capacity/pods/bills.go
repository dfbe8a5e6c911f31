// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// Bills returns what every machine costs that pods ask for, by the price of the plan, from the cache: it is
// counted from when it is asked for until the pod is gone.
func (p *Provisioner) Bills(ctx context.Context) ([]capacity.Bill, error) {
	return bills(ctx, p.cached)
}

// LiveBills returns the same as the API server has it.
func (p *Provisioner) LiveBills(ctx context.Context) ([]capacity.Bill, error) {
	return bills(ctx, p.live)
}

func bills(ctx context.Context, from client.Reader) ([]capacity.Bill, error) {
	slots, err := list(ctx, from, client.MatchingLabels{v1beta1.LabelManagedBy: v1beta1.ManagedBy})
	if err != nil {
		return nil, err
	}
	out := make([]capacity.Bill, 0, len(slots))
	for i := range slots {
		s := &slots[i]
		out = append(out, capacity.Bill{
			Owner: s.owner, Machine: s.name(), UID: s.uid(), InstanceType: s.asked.InstanceType, HourlyPrice: price(s.asked),
			Launched: s.pod != nil && s.pod.Spec.NodeName != "", Leaving: s.isLeaving,
		})
	}
	return out, nil
}

// price is negative where it is not known.
func price(a asked) float64 {
	if a.HourlyPrice == nil || !(*a.HourlyPrice >= 0) {
		return -1
	}
	return *a.HourlyPrice
}
