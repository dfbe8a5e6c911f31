// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/integration/sim"
)

func TestWorkspaceBecomesReadyAndGoes(t *testing.T) {
	w := enter(t)
	tests := []struct {
		reason string
		make   func(namespace, name string) *v1beta1.Workspace
	}{
		{"a manifest in KAITO's form with nothing of ours", kaitoForm},
		{"a manifest that leaves the machine to the planner", plannerForm},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			life := w.begin(t, faults.NewRecorder())
			ws := test.make(w.namespace(t), "chat")
			w.create(t, ws)
			w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)
			if got := w.karpenter.ClaimsEver(ws.UID); got != 1 {
				t.Errorf("NodeClaims ever made: %d, want 1", got)
			}
			w.checkServing(t, ws)
			checkWrites(t, life.recorder.Writes())
			if err := w.client.Delete(t.Context(), ws); err != nil {
				t.Fatal(err)
			}
			w.untilGone(t, ws)
			w.checkNothingLeft(t, ws)
		})
	}
}

// checkWrites bounds the writes from a Workspace's manifest to its first answer. Writes refused because of a lagging
// cache are repeated and come on top.
func checkWrites(t *testing.T, requests []string) {
	t.Helper()
	const (
		// The status is written before the machine is asked for, in the same pass after it was, when it is usable, and
		// when the model answers. Progress in between is written with the next of these, or ten seconds after the last
		// write, longer than these stand-ins need.
		mostStatus = 4
		// Beside it: the finalizer, the revision, the Service, the NetworkPolicy, the NodeClaim and the StatefulSet. In
		// addition, the NodePool of the NodeClaims is created once in a process.
		mostWrites = mostStatus + 6
	)
	writes, status := 0, 0
	for _, request := range requests {
		if strings.HasSuffix(request, faults.Conflict) || request == "create *v1.NodePool" {
			continue
		}
		writes++
		if strings.HasPrefix(request, "patch status of ") {
			status++
		}
	}
	t.Logf("writes from apply to ready: %d, %d of them of the status: %q", writes, status, requests)
	if writes > mostWrites || status > mostStatus {
		t.Errorf("writes: %d, of the status: %d; want at most %d and %d", writes, status, mostWrites, mostStatus)
	}
}

// TestWorkspaceCostsFewRequests holds the requests of several Workspaces to the budgets of docs/benchmarks.md, once the
// controller has read the shared objects. Watches, Leases and Events do not count, and a dry run is a read.
func TestWorkspaceCostsFewRequests(t *testing.T) {
	const (
		count      = 10
		mostWrites = 12 * count
		mostReads  = 3 * count
	)
	w := enter(t)
	life := w.begin(t, faults.NewRecorder())
	namespace := w.namespace(t)
	first := kaitoForm(namespace, "first")
	w.create(t, first)
	w.untilServing(t, first)
	before := life.requests.Load()
	var all []*v1beta1.Workspace
	for i := range count {
		ws := kaitoForm(namespace, fmt.Sprintf("chat-%d", i))
		w.create(t, ws)
		all = append(all, ws)
	}
	for _, ws := range all {
		w.untilServing(t, ws)
	}
	reads, writes, kinds := 0, 0, map[string]int{}
	for _, request := range life.requests.about("")[before:] {
		if strings.Contains(request, "/leases/") || strings.Contains(request, "/events") {
			continue
		}
		kinds[kindOfRequest(request)]++
		if strings.HasPrefix(request, "GET ") || strings.Contains(request, "dryRun=All") {
			reads++
		} else {
			writes++
		}
	}
	t.Logf("%d Workspaces cost %d writes and %d reads: %v", count, writes, reads, kinds)
	if reads > mostReads || writes > mostWrites {
		t.Errorf("%d writes and %d reads, want at most %d and %d", writes, reads, mostWrites, mostReads)
	}
	for _, ws := range append(all, first) {
		w.remove(t, ws)
	}
}

// kindOfRequest returns the method and the kind of its object, without names.
func kindOfRequest(request string) string {
	method, address, _ := strings.Cut(request, " ")
	address, query, _ := strings.Cut(address, "?")
	parts := strings.Split(address, "/")
	out := parts[len(parts)-1]
	for i, part := range parts {
		if part == "namespaces" && len(parts) > i+2 {
			out = parts[i+2]
		} else if part == "nodeclaims" || part == "nodes" || part == "nodepools" {
			out = part
		}
	}
	if strings.Contains(query, "dryRun") {
		method += " (dry run)"
	}
	return method + " " + out
}

func (w *world) checkServing(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	key := client.ObjectKeyFromObject(ws)
	if err := w.client.Get(t.Context(), key, &appsv1.StatefulSet{}); err != nil {
		t.Errorf("StatefulSet: %v", err)
	}
	service := &corev1.Service{}
	if err := w.client.Get(t.Context(), key, service); err != nil {
		t.Errorf("Service: %v", err)
	}
	if service.Spec.PublishNotReadyAddresses {
		t.Error("the Service publishes pods that are not ready")
	}
	if ws.Status.State != v1beta1.StateReady || ws.Status.TargetNodeCount != 1 || len(ws.Status.WorkerNodes) != 1 {
		t.Errorf("state %q, targetNodeCount %d, workerNodes %v; want Ready, 1, one node",
			ws.Status.State, ws.Status.TargetNodeCount, ws.Status.WorkerNodes)
	}
	if ws.Status.ObservedGeneration != ws.Generation {
		t.Errorf("observedGeneration %d, want %d", ws.Status.ObservedGeneration, ws.Generation)
	}
	for _, kind := range []string{
		v1beta1.ConditionPlanned, v1beta1.ConditionNodeClaimReady, v1beta1.ConditionNodesReady,
		v1beta1.ConditionResourceReady, v1beta1.ConditionInferenceReady, v1beta1.ConditionWorkspaceSucceeded,
	} {
		w.untilCondition(t, ws, kind, metav1.ConditionTrue, "")
	}
}

// checkNothingLeft looks for remains of a deleted Workspace. Services and revisions end with their owner by the garbage
// collector, and this API server has none.
func (w *world) checkNothingLeft(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	claims := &karpv1.NodeClaimList{}
	if err := w.client.List(t.Context(), claims, client.MatchingLabels{v1beta1.LabelWorkspaceUID: string(ws.UID)}); err != nil {
		t.Fatal(err)
	}
	nodes := &corev1.NodeList{}
	if err := w.client.List(t.Context(), nodes, client.MatchingLabels{v1beta1.LabelWorkspaceUID: string(ws.UID)}); err != nil {
		t.Fatal(err)
	}
	set := &appsv1.StatefulSet{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), set); !apierrors.IsNotFound(err) {
		t.Errorf("left behind: the StatefulSet (error %v)", err)
	}
	if pools := w.pools(t, ws); len(claims.Items)+len(nodes.Items)+len(pools) > 0 {
		t.Errorf("left behind: %d NodeClaims, %d nodes, %d NodePools", len(claims.Items), len(nodes.Items), len(pools))
	}
}

func TestSettledWorkspaceCostsNoWrites(t *testing.T) {
	w := enter(t)
	life := w.begin(t, faults.NewRecorder())
	ws := kaitoForm(w.namespace(t), "settled")
	w.create(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	w.passes(t, life, ws, 2)
	before := len(life.recorder.Writes())
	w.passes(t, life, ws, 3)
	if writes := life.recorder.Writes(); len(writes) != before {
		t.Errorf("further passes over a settled Workspace wrote: %v", writes[before:])
	}
	life.end(t)

	second := w.begin(t, faults.NewRecorder())
	w.passes(t, second, ws, 2)
	if writes := second.recorder.Writes(); len(writes) != 0 {
		t.Errorf("a restarted controller wrote over a settled Workspace: %v", writes)
	}
}

// passes triggers passes over a Workspace, and waits for the end of each.
func (w *world) passes(t *testing.T, life *life, ws *v1beta1.Workspace, count int) {
	t.Helper()
	w.passesBy(t, life, ws, ws, count)
}

// passesBy triggers passes over a Workspace by touching one of its objects, and waits for the end of each.
func (w *world) passesBy(t *testing.T, life *life, ws *v1beta1.Workspace, touched client.Object, count int) {
	t.Helper()
	key := client.ObjectKeyFromObject(ws)
	for i := range count + 1 {
		seen := life.recorder.Passes(key)
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.dev/touched":"%d %d"}}}`, seen, i)
		if err := w.client.Patch(t.Context(), touched, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
		// A pass has ended once the next one has begun: one object is never reconciled twice at once.
		eventually(t, "another pass", func() (bool, string) {
			return life.recorder.Passes(key) > seen, fmt.Sprint(life.recorder.Passes(key))
		})
	}
}

// freeze waits until the controller has no more writes for a Workspace, because the controller treats an overwritten
// version as outdated. It returns an object of the Workspace; a change to it triggers a pass without changing the
// Workspace.
func (w *world) freeze(t *testing.T, life *life, ws *v1beta1.Workspace) (beside client.Object) {
	t.Helper()
	beside = &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ws.Namespace, Name: "beside",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ws, v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind))},
		},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if err := w.client.Create(t.Context(), beside); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing left to write", func() (bool, string) {
		w.read(t, ws)
		life.recorder.Freeze(ws)
		w.passesBy(t, life, ws, beside, 1)
		now := ws.DeepCopy()
		w.read(t, now)
		return now.ResourceVersion == ws.ResourceVersion, saying(now)
	})
	return beside
}

// TestCrashAtEveryWrite kills the controller at every single write of a Workspace's life, before and
// after the write is done, and lets another one take over.
func TestCrashAtEveryWrite(t *testing.T) {
	w := enter(t)
	for _, moment := range []faults.Moment{faults.Before, faults.After} {
		for number := 1; ; number++ {
			if crashed := w.crashStory(t, number, moment); !crashed || t.Failed() {
				t.Logf("crashed %s each of %d writes", moment, number-1)
				if number < 8 {
					t.Errorf("the story had only %d writes: is the recorder in the way of all of them?", number-1)
				}
				break
			}
		}
	}
}

// TestCrashAtEveryWriteOfAFallback kills the controller at every write on the way from a refused machine
// to the next best, once the write is done: whoever takes over finds the same before the next write.
func TestCrashAtEveryWriteOfAFallback(t *testing.T) {
	w := enter(t)
	w.crashFallback(t, w.begin, 3)
}

// crashFallback starts its controllers with begin. They may make at most this number of NodeClaims: the refused one,
// once more after the crash, and the next.
func (w *world) crashFallback(t *testing.T, begin func(*testing.T, *faults.Recorder) *life, mostEver int) {
	t.Helper()
	w.karpenter.Script(cheap, sim.NoCapacity)
	t.Cleanup(func() { w.karpenter.Script(cheap, sim.Works) })
	for number := 1; !t.Failed(); number++ {
		var c *crash
		t.Run(fmt.Sprintf("write %d", number), func(t *testing.T) {
			c = w.crashAt(t, number, faults.After, begin)
			ws := eitherForm(w.namespace(t), "chat")
			w.create(t, ws)
			most := w.watchClaims(t, ws)
			c.untilReady(t, ws)
			if got := w.karpenter.ClaimsEver(ws.UID); got > mostEver {
				t.Errorf("NodeClaims ever made: %d, want at most %d", got, mostEver)
			}
			if got := most(); got != 1 {
				t.Errorf("NodeClaims at once: %d, want never more than 1", got)
			}
			if ws.Status.Plan.InstanceType != dear {
				t.Errorf("it serves on %s, want %s", ws.Status.Plan.InstanceType, dear)
			}
			for _, a := range ws.Status.Attempts {
				if a.InstanceType == cheap && a.Reason != v1beta1.ReasonNoCapacity {
					t.Errorf("attempt %d, %s: ended with %q %q, want the refusal that it was", a.Number, a.InstanceType, a.Reason, a.Message)
				}
			}
			c.untilDeleted(t, ws)
			w.checkNothingLeft(t, ws)
		})
		if !c.came {
			t.Logf("crashed at each of %d writes", number-1)
			if number < 12 {
				t.Errorf("the story had only %d writes: is the recorder in the way of all of them?", number-1)
			}
			return
		}
	}
}

// crashStory runs the whole story with one crash, and reports whether the crash happened.
func (w *world) crashStory(t *testing.T, number int, moment faults.Moment) (crashed bool) {
	t.Helper()
	var c *crash
	t.Run(fmt.Sprintf("%s write %d", moment, number), func(t *testing.T) {
		c = w.crashAt(t, number, moment, w.begin)
		ws := kaitoForm(w.namespace(t), "chat")
		w.create(t, ws)
		c.untilReady(t, ws)
		if got := w.karpenter.ClaimsEver(ws.UID); got != 1 {
			t.Errorf("NodeClaims ever made: %d, want 1", got)
		}
		c.untilDeleted(t, ws)
		if got := w.karpenter.ClaimsEver(ws.UID); got != 1 {
			t.Errorf("NodeClaims ever made: %d, want 1", got)
		}
		w.checkNothingLeft(t, ws)
	})
	return c.came
}
