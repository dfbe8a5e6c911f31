// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaim

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/capacity/sighting"
)

// uidField selects events by the object that they are about.
const uidField = "involvedObject.uid"

// Events returns what was published about claims, as the API server has it: there is no watch on
// events. Where they may not be read there are none: nothing is decided by events alone.
func (p *Provisioner) Events(ctx context.Context, claims []types.UID) ([]refusal.Event, error) {
	var out []refusal.Event
	for _, uid := range claims {
		list := &corev1.EventList{}
		// Claims have no namespace; events about such objects are in this one.
		err := p.live.List(ctx, list, client.InNamespace(metav1.NamespaceDefault), client.MatchingFields{uidField: string(uid)})
		if apierrors.IsForbidden(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing events about NodeClaim with UID %s: %w", uid, err)
		}
		for i := range list.Items {
			item := &list.Items[i]
			out = append(out, refusal.Event{
				UID: item.InvolvedObject.UID, Reason: item.Reason, Message: item.Message, At: sighting.Last(item),
			})
		}
	}
	return out, nil
}
