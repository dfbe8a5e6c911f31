// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/integration/sim"
)

// TestNodePools runs the stories of machines from pools of both kinds.
func TestNodePools(t *testing.T) {
	stories := []ladderStory{
		{"the first machine type is out of capacity, for ever, and the second serves", poolRefused},
		{"a machine that is lost is replaced by another pool's", poolLosesMachine},
		{"a lost status buys nothing twice", poolLosesStatus},
		{"two machines are in the zone of the first, and one that is lost is replaced alone", poolOfTwo},
		{"a machine that cannot be replaced takes its pool with it", poolWithoutReplacement},
		{"a pool that is not asked for any more leaves nothing", poolSuspended},
		{"nothing is asked while machines are awaited", poolsWait},
	}
	w := enter(t)
	for _, isStatic := range []bool{false, true} {
		t.Run(map[bool]string{false: "dynamic", true: "static"}[isStatic], func(t *testing.T) {
			told := slices.Clone(stories)
			if !isStatic { // of static ones Karpenter says nothing
				told = append(told, ladderStory{"the first machine type is hidden, and the second serves", poolHidden})
			}
			for _, isAway := range []bool{false, true} {
				told = append(told, ladderStory{
					"a lost machine whose type is forbidden meanwhile has another plan got" +
						map[bool]string{true: ", if it is lost without a controller"}[isAway],
					func(t *testing.T, c *climber) { poolForbidden(t, c, isStatic, isAway) },
				})
			}
			for _, story := range told {
				story.runWith(t, w, func(t *testing.T, c *climber) { c.life = c.beginPools(t, c.clock, faults.NewRecorder(), isStatic) })
			}
		})
	}
}

// beginPools starts a controller that makes pools.
func (w *world) beginPools(
	t *testing.T, now clock.PassiveClock, recorder *faults.Recorder, isStatic bool, change ...func(*options.Controller),
) *life {
	t.Helper()
	o := w.options()
	o.CapacityBackend, o.StaticNodePools = options.BackendNodePool, isStatic
	for _, with := range change {
		with(&o)
	}
	return w.beginWith(t, recorder, now, o)
}

// pools of a Workspace.
func (w *world) pools(t *testing.T, ws *v1beta1.Workspace) []karpv1.NodePool {
	t.Helper()
	list := &karpv1.NodePoolList{}
	if err := w.client.List(t.Context(), list, client.MatchingLabels{v1beta1.LabelWorkspaceUID: string(ws.UID)}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// watchPools counts the pools of a Workspace: how many there were at once, and ever.
func (w *world) watchPools(t *testing.T, ws *v1beta1.Workspace) (stop func() (most, ever int)) {
	t.Helper()
	watcher, err := w.client.Watch(t.Context(), &karpv1.NodePoolList{}, client.MatchingLabels{v1beta1.LabelWorkspaceUID: string(ws.UID)})
	if err != nil {
		t.Fatal(err)
	}
	most, ever, done := 0, map[string]bool{}, make(chan struct{})
	go func() {
		defer close(done)
		alive := map[string]bool{}
		for event := range watcher.ResultChan() {
			if pool, ok := event.Object.(*karpv1.NodePool); ok {
				alive[pool.Name], ever[pool.Name] = event.Type != watch.Deleted, true
			}
			maps.DeleteFunc(alive, func(_ string, is bool) bool { return !is })
			most = max(most, len(alive))
		}
	}()
	t.Cleanup(watcher.Stop)
	return func() (int, int) {
		watcher.Stop()
		<-done
		return most, len(ever)
	}
}

func poolRefused(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoCapacity)
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	mostClaims, pools := c.watchClaims(t, ws), c.watchPools(t, ws)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" NoCapacity", "2 "+dear)
	c.checkHeld(t, mostClaims)
	if most, ever := pools(); most != 1 || ever != 2 {
		t.Errorf("NodePools: %d at once, %d ever; want 1 and 2", most, ever)
	}
	c.untilEvent(t, ws, "NoCapacity", cheap)
	c.untilEvent(t, ws, "FallingBack", dear)
	c.passes(t, c.life, ws, 2)
	writes := len(c.life.recorder.Writes())
	c.passes(t, c.life, ws, 3)
	if all := c.life.recorder.Writes(); len(all) != writes {
		t.Errorf("a settled Workspace cost writes: %v", all[writes:])
	}
	c.remove(t, ws)
}

func poolHidden(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.Hidden)
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" NoCapacity", "2 "+dear)
	if got := ws.Status.Attempts[0]; got.Message != sim.HiddenWords || !strings.Contains(got.Fix, "quota") {
		t.Errorf("attempt 1 ended with %q and the fix %q; want Karpenter's own words, and to look at the quota", got.Message, got.Fix)
	}
	c.remove(t, ws)
}

// poolsWait counts requests while one pool waits for its machine, and another one has none.
func poolsWait(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.Hangs)
	c.karpenter.Script(dear, sim.Ignored)
	one, none := kaitoForm(c.namespace(t), "one"), kaitoForm(c.namespace(t), "none")
	one.Resource.InstanceType, none.Resource.InstanceType = cheap, dear
	c.create(t, one)
	c.create(t, none)
	c.untilCondition(t, one, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, "LaunchFailed")
	c.clock.step(11 * time.Second) // mere progress is written a little later
	c.patch(t, none, nil)
	eventually(t, "it says that there is no claim", func() (bool, string) {
		err := c.client.Get(t.Context(), client.ObjectKeyFromObject(none), none)
		return err == nil && strings.Contains(condition(none, v1beta1.ConditionNodeClaimReady).Message, "Karpenter has not created a NodeClaim"), saying(none)
	})
	c.checkSilent(t, "pools wait")
	c.remove(t, one)
	c.remove(t, none)
}

func poolLosesMachine(t *testing.T, c *climber) {
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilServing(t, ws)
	pools := c.watchPools(t, ws)
	c.loseMachine(t, ws)
	c.until(t, ws, "1 "+cheap+" Lost", "2 "+cheap)
	c.untilServing(t, ws)
	if most, ever := pools(); most != 1 || ever != 2 {
		t.Errorf("NodePools: %d at once, %d since the loss; want 1 and 2", most, ever)
	}
	c.remove(t, ws)
}

func poolLosesStatus(t *testing.T, c *climber) {
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilServing(t, ws)
	ever := c.karpenter.ClaimsEver(ws.UID)
	c.life.end(t)
	before := ws.DeepCopy()
	ws.Status = v1beta1.WorkspaceStatus{}
	if err := c.client.Status().Patch(t.Context(), ws, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	isStatic := c.pools(t, ws)[0].Spec.Replicas != nil
	c.life = c.beginPools(t, c.clock, faults.NewRecorder(), isStatic)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap)
	if got := c.karpenter.ClaimsEver(ws.UID); got != ever {
		t.Errorf("NodeClaims ever made: %d, want %d as before", got, ever)
	}
	c.remove(t, ws)
}

func poolOfTwo(t *testing.T, c *climber) {
	ws := groupForm(c.namespace(t), "stages")
	c.create(t, ws)
	pools := c.watchPools(t, ws)
	c.untilServing(t, ws)
	var zones []string
	for _, claim := range c.claims(t, ws) {
		zones = append(zones, claim.Labels[corev1.LabelTopologyZone])
	}
	if len(zones) != 2 || zones[0] != zones[1] {
		t.Errorf("zones %v, want one for both", zones)
	}
	lost := c.loseOne(t, ws)
	eventually(t, "another machine takes its place", func() (bool, string) {
		claims := c.claims(t, ws)
		isLost := func(claim karpv1.NodeClaim) bool { return claim.UID == lost }
		return len(claims) == 2 && !slices.ContainsFunc(claims, isLost), fmt.Sprintf("%d NodeClaims", len(claims))
	})
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+dear)
	if most, ever := pools(); most != 1 || ever != 1 {
		t.Errorf("NodePools: %d at once, %d ever; want one that stays", most, ever)
	}
	if got := c.karpenter.ClaimsEver(ws.UID); got != 3 {
		t.Errorf("NodeClaims ever made: %d, want 3: the other machine was kept", got)
	}
	c.remove(t, ws)
}

func poolWithoutReplacement(t *testing.T, c *climber) {
	ws := groupForm(c.namespace(t), "stages")
	c.create(t, ws)
	c.untilServing(t, ws)
	eventually(t, "another second: times are in whole ones, and a later machine is no longer one of the first", func() (bool, string) {
		return time.Since(ws.Status.Attempts[0].ReadyTime.Time) > 2*time.Second, saying(ws)
	})
	c.karpenter.Script(dear, sim.NoCapacity)
	c.loseOne(t, ws)
	c.until(t, ws, "1 "+dear+" NoCapacity")
	c.untilReleased(t, ws)
	eventually(t, "no pool", func() (bool, string) {
		pools := c.pools(t, ws)
		return len(pools) == 0, fmt.Sprintf("%d pools", len(pools))
	})
	c.remove(t, ws)
}

// loseOne deletes the younger of several machines behind the controller's back, and returns its UID.
func (w *world) loseOne(t *testing.T, ws *v1beta1.Workspace) types.UID {
	t.Helper()
	claims := w.claims(t, ws)
	youngest := slices.MaxFunc(claims, func(a, b karpv1.NodeClaim) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	if err := w.client.Delete(t.Context(), &youngest); err != nil {
		t.Fatal(err)
	}
	return youngest.UID
}

// poolForbidden loses a machine before the new controller's second pass if isAway: Karpenter may already have replaced it.
func poolForbidden(t *testing.T, c *climber, isStatic, isAway bool) {
	ws := templateForm(c.namespace(t))
	ws.Resource.LabelSelector, ws.Resource.InstanceType, ws.Resource.Count = nil, "", new(2)
	ws.Resource.Placement = &v1beta1.PlacementSpec{InstanceTypes: []string{cheap, dear}}
	c.create(t, ws)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap)
	c.life.end(t)
	if isAway {
		c.loseOne(t, ws)
	}
	c.life = c.beginPools(t, c.clock, faults.NewRecorder(), isStatic, func(o *options.Controller) { o.Spending.InstanceTypes = []string{dear} })
	if !isAway {
		c.passes(t, c.life, ws, 2)
		c.until(t, ws, "1 "+cheap) // the serving pods continue
		c.loseOne(t, ws)
	}
	c.until(t, ws, "1 "+cheap+" Released", "2 "+dear)
	c.untilServing(t, ws)
	if got := ws.Status.Attempts[0].Message; !isStatic && !strings.Contains(got, "no machine of type "+cheap+" may be bought to replace the lost one") {
		t.Errorf("attempt 1 ended with %q, want it to say why", got)
	}
	c.remove(t, ws)
}

func poolSuspended(t *testing.T, c *climber) {
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilServing(t, ws)
	c.patch(t, ws, func() { ws.Suspend = true })
	c.untilReleased(t, ws)
	eventually(t, "no pool", func() (bool, string) {
		pools := c.pools(t, ws)
		return len(pools) == 0, fmt.Sprintf("%d pools", len(pools))
	})
	c.patch(t, ws, func() { ws.Suspend = false })
	c.untilServing(t, ws)
	c.remove(t, ws)
}

// TestPoolsCrashAtEveryWriteOfAFallback makes Karpenter recreate the claims of a pool until the next controller
// releases the pool.
func TestPoolsCrashAtEveryWriteOfAFallback(t *testing.T) {
	const mostEver = 100 // only that it ends
	w := enter(t)
	w.crashFallback(t, func(t *testing.T, recorder *faults.Recorder) *life {
		return w.beginPools(t, clock.RealClock{}, recorder, false)
	}, mostEver)
}
