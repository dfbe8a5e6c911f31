// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/meter"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
)

// lessons have all Workspaces learn from the attempts of each.
type lessons struct {
	reader  client.Reader
	memory  *cooldown.Memory
	market  *purchase.Market
	waiting *watch.Waiting
	metrics *meter.Metrics
	clock   clock.PassiveClock
}

// note counts the ends of a Workspace's attempts, once they are written, and has all Workspaces learn from them.
func (l *lessons) note(who refusal.Asker, before, after []v1beta1.Attempt) {
	l.metrics.Count(before, after)
	l.learn(who, before, after)
}

// unanswered has all Workspaces learn from attempts whose write failed but may have been done: the next pass would
// find nothing new in them. A refused write came from an old Workspace.
func (l *lessons) unanswered(err error, who refusal.Asker, before, after []v1beta1.Attempt) {
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		l.learn(who, before, after)
	}
}

// learn has all Workspaces learn from changed attempts. Those that wait for a reopened offer look again.
func (l *lessons) learn(who refusal.Asker, before, after []v1beta1.Attempt) {
	changed := slices.DeleteFunc(slices.Clone(after), func(a v1beta1.Attempt) bool {
		return slices.ContainsFunc(before, func(b v1beta1.Attempt) bool { return equality.Semantic.DeepEqual(a, b) })
	})
	if len(changed) == 0 {
		return
	}
	opened := l.memory.Learn(l.clock.Now(), l.market.Remember(who, changed)...)
	if last := &after[len(after)-1]; last.Reason != "" || last.ReadyTime != nil {
		opened = append(opened, l.memory.Forget(who.Workspace)...)
	}
	l.wake(opened)
}

// launched has all Workspaces learn of a launched machine before the status reports it: a launch disproves a refusal
// for want of quota.
func (l *lessons) launched(who refusal.Asker, open *v1beta1.Attempt) {
	if open.ReadyTime == nil && acquire.HasLaunched(open, "") {
		l.wake(l.memory.Learn(l.clock.Now(), l.market.Remember(who, []v1beta1.Attempt{*open})...))
	}
}

// wake has the Workspaces look again that wait for an opened scope.
func (l *lessons) wake(opened []refusal.Scope) {
	now := l.clock.Now()
	l.waiting.WakeFor(opened, func(who refusal.Asker, offers []refusal.Offering) bool { return l.memory.IsOpen(now, who, offers) })
}

// asker identifies the Workspace in the memory of refusals.
func asker(ws *v1beta1.Workspace) refusal.Asker {
	return refusal.Asker{Workspace: ws.UID, Namespace: ws.Namespace}
}

// all are those of all Workspaces, from the cache.
func (l *lessons) all(ctx context.Context) ([]refusal.Attempt, error) {
	list := &v1beta1.WorkspaceList{}
	if err := l.reader.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing workspaces: %w", err)
	}
	var out []refusal.Attempt
	for i := range list.Items {
		out = append(out, l.market.Remember(asker(&list.Items[i]), list.Items[i].Status.Attempts)...)
	}
	return out, nil
}
