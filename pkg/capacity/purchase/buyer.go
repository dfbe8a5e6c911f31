// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package purchase

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/revision"
)

// Buyer is the state of a Workspace in one pass. This package does not change it.
type Buyer struct {
	Workspace *v1beta1.Workspace
	// Spec is the Workspace to plan for: the current one or, if its spec has no plan, the last accepted one.
	Spec  *v1beta1.Workspace
	Owner capacity.Owner
	// Limits are the administrator's limits at the beginning of the choice.
	Limits Limits
	// Namespace is the metadata of the Workspace's namespace.
	Namespace metav1.ObjectMeta
	// Accepted is the accepted revision; nil before the first one. Inputs are the inputs of the plan to make.
	Accepted *revision.Revision
	Inputs   render.Inputs
	Attempts acquire.Attempts
	Machines acquire.Machines
	Sets     []*appsv1.StatefulSet
	Pods     []corev1.Pod
	// Surge names the attempt that serves while another plan is chosen. IsAnswering: the model answers.
	Surge       acquire.Surge
	IsAnswering bool
	// Deleting is the offer that is about to be lost; nil if there is none. It is requested again only if no other
	// offer is suitable.
	Deleting *cooldown.Exclusion
	// LeftNodes are the nodes to avoid now. CannotBuy: no provisioner is installed.
	LeftNodes []render.LeftNode
	CannotBuy bool
	// IsRepair: the accepted plan serves, and only replacements of its lost machines are bought.
	IsRepair bool
}

// Serving returns the attempt whose machines serve while another attempt acquires its own, or nil.
func (b *Buyer) Serving() *v1beta1.Attempt { return b.Attempts.OpenNumber(b.Surge.Serving) }

func (b *Buyer) asker() refusal.Asker {
	return refusal.Asker{Workspace: b.Workspace.UID, Namespace: b.Workspace.Namespace}
}

// Suffices reports whether the serving machines are enough for a plan, so that nothing has to be bought.
func (b *Buyer) Suffices(made *revision.Revision) bool {
	held := b.Serving()
	return held != nil && b.Surge.Fault == "" && b.Machines.Suffice(held, &made.Revision)
}

// IsLikeServing reports whether a plan needs machines like the serving ones.
func (b *Buyer) IsLikeServing(made *revision.Revision) bool {
	held := b.Serving()
	return held != nil && held.InstanceType == made.Plan.InstanceType && held.CapacityType == made.Plan.CapacityType &&
		held.Zone == acquire.Place(made.Plan.Zones)
}
