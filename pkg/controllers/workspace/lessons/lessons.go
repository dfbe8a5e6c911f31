// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lessons shares the outcome of each Workspace's attempts with all Workspaces, and wakes those that wait for a
// reopened offering. It must not depend on the reasons of outcomes.
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

// Lessons shares the outcome of each Workspace's attempts with all Workspaces.
type Lessons struct {
	Reader  client.Reader
	Memory  *cooldown.Memory
	Market  *purchase.Market
	Waiting *watch.Waiting
	Metrics *meter.Metrics
	Clock   clock.PassiveClock
}

// Note counts the ends of a Workspace's attempts once they are written, and shares them with all Workspaces.
func (l *Lessons) Note(who refusal.Asker, before, after []v1beta1.Attempt) {
	l.Metrics.Count(before, after)
	l.Learn(who, before, after)
}

// Unanswered shares attempts whose write failed but may have reached the API server: the next pass would find nothing
// new in them. If the API server refused the write, it shares nothing, because the attempts came from an outdated
// Workspace.
func (l *Lessons) Unanswered(err error, who refusal.Asker, before, after []v1beta1.Attempt) {
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		l.Learn(who, before, after)
	}
}

// Learn shares changed attempts with all Workspaces, and wakes those that wait for a reopened offering.
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

// Launched shares a launched machine before the status reports it, because a launch disproves a refusal for lack of
// quota.
func (l *Lessons) Launched(who refusal.Asker, open *v1beta1.Attempt) {
	if open.ReadyTime == nil && acquire.HasLaunched(open, "") {
		l.Wake(l.Memory.Learn(l.Clock.Now(), l.Market.Remember(who, []v1beta1.Attempt{*open})...))
	}
}

// Wake wakes the Workspaces that wait for an offering in one of the opened scopes.
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
