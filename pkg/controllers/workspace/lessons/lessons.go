// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lessons has all Workspaces learn from the attempts of each, and look again once an offer opens. It must not know
// why an attempt ended.
package lessons

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

// Lessons have all Workspaces learn from the attempts of each.
type Lessons struct {
	Reader  client.Reader
	Memory  *cooldown.Memory
	Market  *purchase.Market
	Waiting *watch.Waiting
	Metrics *meter.Metrics
	Clock   clock.PassiveClock
}

// Note counts the ends of a Workspace's attempts, once they are written, and has all Workspaces learn from them.
func (l *Lessons) Note(who refusal.Asker, before, after []v1beta1.Attempt) {
	l.Metrics.Count(before, after)
	l.Learn(who, before, after)
}

// Unanswered has all Workspaces learn from attempts whose write failed but may have been done: the next pass would
// find nothing new in them. A refused write came from an old Workspace.
func (l *Lessons) Unanswered(err error, who refusal.Asker, before, after []v1beta1.Attempt) {
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		l.Learn(who, before, after)
	}
}

// Learn has all Workspaces learn from changed attempts. Those that wait for a reopened offer look again.
func (l *Lessons) Learn(who refusal.Asker, before, after []v1beta1.Attempt) {
	changed := slices.DeleteFunc(slices.Clone(after), func(a v1beta1.Attempt) bool {
		return slices.ContainsFunc(before, func(b v1beta1.Attempt) bool { return equality.Semantic.DeepEqual(a, b) })
	})
	if len(changed) == 0 {
		return
	}
	opened := l.Memory.Learn(l.Clock.Now(), l.Market.Remember(who, changed)...)
	if last := &after[len(after)-1]; last.Reason != "" || last.ReadyTime != nil {
		opened = append(opened, l.Memory.Forget(who.Workspace)...)
	}
	l.Wake(opened)
}

// Launched has all Workspaces learn of a launched machine before the status reports it: a launch disproves a refusal
// for want of quota.
func (l *Lessons) Launched(who refusal.Asker, open *v1beta1.Attempt) {
	if open.ReadyTime == nil && acquire.HasLaunched(open, "") {
		l.Wake(l.Memory.Learn(l.Clock.Now(), l.Market.Remember(who, []v1beta1.Attempt{*open})...))
	}
}

// Wake has the Workspaces look again that wait for an opened scope.
func (l *Lessons) Wake(opened []refusal.Scope) {
	now := l.Clock.Now()
	l.Waiting.WakeFor(opened, func(who refusal.Asker, offers []refusal.Offering) bool { return l.Memory.IsOpen(now, who, offers) })
}

// Asker identifies the Workspace in the memory of refusals.
func Asker(ws *v1beta1.Workspace) refusal.Asker {
	return refusal.Asker{Workspace: ws.UID, Namespace: ws.Namespace}
}

// All returns the attempts of all Workspaces, from the cache.
func (l *Lessons) All(ctx context.Context) ([]refusal.Attempt, error) {
	list := &v1beta1.WorkspaceList{}
	if err := l.Reader.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing workspaces: %w", err)
	}
	var out []refusal.Attempt
	for i := range list.Items {
		out = append(out, l.Market.Remember(Asker(&list.Items[i]), list.Items[i].Status.Attempts)...)
	}
	return out, nil
}
