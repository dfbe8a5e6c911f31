// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// rewatchAfter is the pause before an ended watch is opened again.
const rewatchAfter = time.Second

// changes signals a change of a Workspace, its machines or its pods. A signal only requests another reading, so a lost
// signal does no harm.
func (c *Cluster) changes(ctx context.Context, clock clock.Clock, ws *v1beta1.Workspace) <-chan struct{} {
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // a signal is already pending
		}
	}
	named := client.MatchingFields{"metadata.name": ws.Name}
	namespace := client.InNamespace(ws.Namespace)
	go c.watchFor(ctx, clock, notify, &v1beta1.WorkspaceList{}, namespace, named)
	go c.watchFor(ctx, clock, notify, &corev1.PodList{}, namespace, podsOf(ws.Name))
	go c.watchFor(ctx, clock, notify, nodeClaims(), machinesOf(ws.UID))
	return changed
}

// watchFor signals every event until the context ends. It skips kinds that are missing or forbidden to the user.
func (c *Cluster) watchFor(
	ctx context.Context, clock clock.Clock, notify func(), list client.ObjectList, options ...client.ListOption,
) {
	for ctx.Err() == nil {
		events, err := c.Objects.Watch(ctx, list, options...)
		switch {
		case err == nil:
			notify() // of changes before the watch
			drain(ctx, events, notify)
		case meta.IsNoMatchError(err), apierrors.IsForbidden(err), apierrors.IsNotFound(err):
			return
		}
		select {
		case <-ctx.Done():
		case <-clock.After(rewatchAfter):
		}
	}
}

// drain signals the events of one watch until it ends.
func drain(ctx context.Context, events watch.Interface, notify func()) {
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-events.ResultChan():
			if !open {
				return
			}
			notify()
		}
	}
}
