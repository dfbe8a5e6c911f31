// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/integration/sim"
)

// TestHandover runs the stories of Workspaces with machines of a retired back end. They continue to serve, get no
// second machine and leave nothing behind.
func TestHandover(t *testing.T) {
	claims, dynamic, static := withBackEnd(options.BackendNodeClaim), withBackEnd(options.BackendNodePool), withStaticPools
	pods, existing := withBackEnd(options.BackendPods), withBackEnd(options.BackendExisting)
	tests := []struct {
		reason       string
		former, next func(*options.Controller)
		tell         func(*testing.T, *handover)
	}{
		{"from claims to nodes that exist, and suspended", claims, existing, handedSuspended},
		{"from claims of Karpenter's to those of gpu-provisioner's, and deleted", claims, withAgentPools, handedDeleted},
		{"from static pools to claims, and deleted", static, claims, handedDeleted},
		{"from dynamic pools to nodes that exist, and deleted", dynamic, existing, handedDeleted},
		{"from claims to pools, and edited", claims, static, handedEdited},
		{"from dynamic pools to claims, and edited", dynamic, claims, handedEdited},
		{"from claims to pods, and edited", claims, pods, handedEdited},
		{"from pods to claims, and edited", pods, claims, handedEdited},
		{"from claims to pools, and the machine is lost", claims, dynamic, handedLost},
		{"from claims to pools, and the status is lost, too", claims, dynamic, handedForgotten},
		{"from pools to claims before the machine is there", dynamic, claims, handedEarly},
		{"from claims to nodes that exist, and deleted while nobody watched", claims, existing, handedOrphaned},
	}
	w := enter(t)
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			h := &handover{climber: &climber{world: w, clock: &stepClock{}}, next: test.next}
			h.begin(t, test.former)
			for _, machine := range []string{cheap, dear} {
				t.Cleanup(func() { h.karpenter.Script(machine, sim.Works) })
			}
			h.ws = plannerForm(h.namespace(t), "chat")
			h.ws.Resource.Placement = &v1beta1.PlacementSpec{InstanceTypes: []string{cheap}}
			h.autoscaler.Serve(h.ws.Namespace, h.group(t, cheap, sim.Scales), h.group(t, dear, sim.Scales))
			test.tell(t, h)
		})
	}
}

// handover is the story of one Workspace, and of the back end that comes next.
type handover struct {
	*climber
	ws   *v1beta1.Workspace
	next func(*options.Controller)
}

func withBackEnd(name string) func(*options.Controller) {
	return func(o *options.Controller) { o.CapacityBackend = name }
}

func withStaticPools(o *options.Controller) {
	o.CapacityBackend, o.StaticNodePools = options.BackendNodePool, true
}

func withAgentPools(o *options.Controller) {
	o.NodeClasses = []v1beta1.NodeClassReference{{Group: "kaito.sh", Kind: "KaitoNodeClass", Name: "agent-pools"}}
}

// begin ends the controller, if there is one, and begins one with a back end.
func (h *handover) begin(t *testing.T, set func(*options.Controller)) {
	t.Helper()
	if h.life != nil {
		h.life.end(t)
	}
	o := h.options()
	set(&o)
	h.life = h.beginWith(t, faults.NewRecorder(), h.clock, o)
}

// serve waits until the Workspace serves, hands it over, and checks that nothing changes.
func (h *handover) serve(t *testing.T) (pod types.UID) {
	t.Helper()
	h.create(t, h.ws)
	h.untilServing(t, h.ws)
	h.passes(t, h.life, h.ws, 1)
	pod = h.podUID(t, h.ws)
	h.begin(t, h.next)
	h.servesOn(t, pod)
	return pod
}

// servesOn checks that the Workspace keeps its machines, and serves on them.
func (h *handover) servesOn(t *testing.T, pod types.UID) {
	t.Helper()
	ever := h.karpenter.ClaimsEver(h.ws.UID)
	h.passes(t, h.life, h.ws, 3)
	if writes := h.life.recorder.Writes(); len(writes) > 0 {
		t.Errorf("a Workspace that serves was written to: %v", writes)
	}
	h.until(t, h.ws, "1 "+cheap)
	h.untilCondition(t, h.ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)
	if got := h.podUID(t, h.ws); got != pod {
		t.Errorf("pod %s serves, want %s as before", got, pod)
	}
	if got := h.karpenter.ClaimsEver(h.ws.UID); got != ever || len(h.claims(t, h.ws)) != ever {
		t.Errorf("NodeClaims: %d ever, %d now; want %d as before", got, len(h.claims(t, h.ws)), ever)
	}
}

func handedDeleted(t *testing.T, h *handover) {
	h.serve(t)
	h.deleteWithPods(t, h.ws)
	h.checkNothingLeft(t, h.ws)
}

func handedSuspended(t *testing.T, h *handover) {
	h.serve(t)
	h.patch(t, h.ws, func() { h.ws.Suspend = true })
	h.untilReleased(t, h.ws)
	h.until(t, h.ws, "1 "+cheap+" Released")
	h.deleteWithPods(t, h.ws)
	h.checkNothingLeft(t, h.ws)
}

// handedEdited has the Workspace need another machine: the present back end gets it once the former back end's machine
// is gone.
func handedEdited(t *testing.T, h *handover) {
	h.serve(t)
	most := h.watchClaims(t, h.ws)
	h.edit(t, h.ws, dear)
	h.until(t, h.ws, "1 "+cheap+" Released", "2 "+dear)
	h.untilServing(t, h.ws)
	if got := most(); got > 1 {
		t.Errorf("NodeClaims at once: %d, want never more than 1", got)
	}
	h.deleteWithPods(t, h.ws)
	h.checkNothingLeft(t, h.ws)
}

func handedLost(t *testing.T, h *handover) {
	h.serve(t)
	h.loseMachine(t, h.ws)
	h.until(t, h.ws, "1 "+cheap+" Lost", "2 "+cheap)
	h.untilServing(t, h.ws)
	if got := len(h.pools(t, h.ws)); got != 1 {
		t.Errorf("NodePools: %d, want that of the second attempt", got)
	}
	h.deleteWithPods(t, h.ws)
	h.checkNothingLeft(t, h.ws)
}

func handedForgotten(t *testing.T, h *handover) {
	pod := h.serve(t)
	h.life.end(t)
	if err := h.client.Status().Patch(t.Context(), h.ws, client.RawPatch(types.MergePatchType, []byte(`{"status":null}`))); err != nil {
		t.Fatal(err)
	}
	h.begin(t, h.next)
	h.untilServing(t, h.ws)
	h.until(t, h.ws, "1 "+cheap)
	if got := h.podUID(t, h.ws); got != pod || h.karpenter.ClaimsEver(h.ws.UID) != 1 {
		t.Errorf("pod %s after %d NodeClaims, want %s after 1", got, h.karpenter.ClaimsEver(h.ws.UID), pod)
	}
	h.deleteWithPods(t, h.ws)
	h.checkNothingLeft(t, h.ws)
}

// handedEarly hands over a machine that has not joined yet.
func handedEarly(t *testing.T, h *handover) {
	h.karpenter.Script(cheap, sim.Hangs)
	h.ws.Resource.Placement.InstanceTypes = []string{cheap, dear}
	h.create(t, h.ws)
	eventually(t, "a claim", func() (bool, string) { return len(h.claims(t, h.ws)) == 1, saying(h.ws) })
	h.begin(t, h.next)
	h.passes(t, h.life, h.ws, 2)
	h.until(t, h.ws, "1 "+cheap)
	h.later(t, h.ws, 11*time.Minute)
	h.until(t, h.ws, "1 "+cheap+" Unknown", "2 "+dear)
	h.untilServing(t, h.ws)
	if got := len(h.pools(t, h.ws)); got != 0 {
		t.Errorf("NodePools: %d, want none of the second attempt", got)
	}
	h.deleteWithPods(t, h.ws)
	h.checkNothingLeft(t, h.ws)
}

// handedOrphaned has the Workspace go while no controller runs.
func handedOrphaned(t *testing.T, h *handover) {
	h.create(t, h.ws)
	h.untilServing(t, h.ws)
	h.life.end(t)
	h.forceAway(t, h.ws)
	h.begin(t, h.next)
	h.untilReleased(t, h.ws)
}
