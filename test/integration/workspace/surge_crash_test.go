// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// TestCrashAtEveryWriteOfASurge kills the controller at every write on the way from one machine to another,
// before and after the write is done, and lets another one take over.
func TestCrashAtEveryWriteOfASurge(t *testing.T) {
	w := enter(t)
	for _, moment := range []faults.Moment{faults.Before, faults.After} {
		for number := 1; ; number++ {
			if crashed := w.crashSurge(t, number, moment); !crashed || t.Failed() {
				t.Logf("crashed %s each of %d writes", moment, number-1)
				if number < 7 && !t.Failed() {
					t.Errorf("the story had only %d writes: is the recorder in the way of all of them?", number-1)
				}
				break
			}
		}
	}
}

func (w *world) crashSurge(t *testing.T, number int, moment faults.Moment) (crashed bool) {
	t.Helper()
	t.Run(fmt.Sprintf("%s write %d", moment, number), func(t *testing.T) {
		c := &climber{world: w}
		c.life = c.begin(t, faults.NewRecorder())
		ws := c.serveOn(t, dear)
		c.passes(t, c.life, ws, 2)
		c.life.end(t)

		most, early := c.watchClaims(t, ws), c.watchEarly(t, ws)
		var first *life
		recorder := faults.CrashAt(number, moment, func() { first.cancel() })
		first = c.begin(t, recorder)
		c.edit(t, ws, cheap)
		eventually(t, "moved", func() (bool, string) {
			if recorder.Crashed() && !crashed {
				crashed = true
				first.end(t)
				c.life = c.begin(t, faults.NewRecorder())
			}
			if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
				return false, err.Error()
			}
			isReady := condition(ws, v1beta1.ConditionReady).Status == metav1.ConditionTrue
			return isReady && len(c.claims(t, ws)) == 1 && ws.Status.Plan.InstanceType == cheap, saying(ws)
		})
		c.until(t, ws, "1 "+dear+" Released", "2 "+cheap)
		if got := c.karpenter.ClaimsEver(ws.UID); got != 2 {
			t.Errorf("NodeClaims ever made: %d, want 2", got)
		}
		checkMost(t, most, 2)
		if early() {
			t.Error("the old machine went before the new one was usable")
		}
		if crashed {
			c.remove(t, ws)
		}
	})
	return crashed
}

// watchEarly watches the NodeClaims of a Workspace. The returned function stops the watch and reports whether one was
// released before another one was usable.
func (w *world) watchEarly(t *testing.T, ws *v1beta1.Workspace) (stop func() bool) {
	t.Helper()
	watcher, err := w.client.Watch(t.Context(), &karpv1.NodeClaimList{}, client.MatchingLabels{v1beta1.LabelWorkspaceUID: string(ws.UID)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Stop)
	early := make(chan bool, 1)
	go func() {
		usable, isEarly := map[string]bool{}, false
		for event := range watcher.ResultChan() {
			claim, ok := event.Object.(*karpv1.NodeClaim)
			if !ok {
				continue
			}
			if usable[claim.Name] = claim.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue(); !claim.DeletionTimestamp.IsZero() {
				isEarly = isEarly || len(usable) < 2 || slices.Contains(slices.Collect(maps.Values(usable)), false)
			}
		}
		early <- isEarly
	}()
	return func() bool {
		watcher.Stop()
		return <-early
	}
}
