// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/cost"
)

// unknown is the price source of a machine without a known price.
const unknown = "unknown"

// machine converts a launched machine for the ledger. Without a Workspace it counts as leaked, unless it is being
// deleted.
func (k *Keeper) machine(bill *capacity.MachineCost, ws *v1beta1.Workspace) cost.Machine {
	out := cost.Machine{
		UID: string(bill.UID), Key: k.key(bill, ws), LaunchedAt: bill.LaunchedAt, Owned: ws != nil || bill.Leaving,
	}
	if ws == nil {
		return out
	}
	ready := meta.FindStatusCondition(ws.Status.Conditions, v1beta1.ConditionInferenceReady)
	if ready == nil {
		return out
	}
	attempts := acquire.Attempts(ws.Status.Attempts)
	out.Serving = ready.Status == metav1.ConditionTrue && attempts.IsComplete(bill.Machine)
	out.Since = ready.LastTransitionTime.Time
	if attempt := attempts.Of(bill.Machine); attempt != nil { // a replacement may be younger than the answer
		out.Served = acquire.HasAnswered(&ws.Status, attempt) && out.Since.After(bill.LaunchedAt)
	}
	return out
}

// key returns the account of a machine. ws is nil if its Workspace is gone.
func (k *Keeper) key(bill *capacity.MachineCost, ws *v1beta1.Workspace) cost.Key {
	out := cost.Key{
		Namespace: bill.Owner.Namespace, Workspace: bill.Owner.Name, InstanceType: bill.InstanceType,
		CapacityType: string(bill.CapacityType), Price: cost.MicroUSD(bill.HourlyPrice), Source: k.PriceSource,
	}
	if out.Price == cost.Unpriced {
		out.Source = unknown
	}
	if ws != nil {
		out.Labels = cost.Labels(ws.Labels, k.Labels)
	}
	return out
}
