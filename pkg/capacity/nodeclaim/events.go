// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaim

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/events"
)

// Events returns the events about claims.
func (p *Provisioner) Events(ctx context.Context, claims []types.UID) ([]refusal.Event, error) {
	var out []refusal.Event
	for _, uid := range claims {
		// Claims have no namespace. Events about such objects are in the default namespace.
		published, err := events.About(ctx, p.live, metav1.NamespaceDefault, uid)
		if err != nil {
			return nil, err
		}
		for i := range published {
			item := &published[i]
			out = append(out, refusal.Event{UID: uid, Reason: item.Reason, Message: item.Message, At: events.LastSeen(item)})
		}
	}
	return out, nil
}
