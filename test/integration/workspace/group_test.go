// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
	cloudscript "github.com/modelberth/modelberth/test/script"
)

// zoneType is a machine type of this story alone, because refusals are remembered.
const zoneType = "Standard_NC40ads_H100_v5"

// groupForm is a Workspace whose model has a stage on each of two machines.
func groupForm(namespace, name string) *v1beta1.Workspace {
	ws := kaitoForm(namespace, name)
	ws.Inference.Preset.Name = "tiny-chat-vllm"
	ws.Inference.Engine = &v1beta1.EngineSpec{Args: map[string]v1beta1.EngineArg{"pipeline-parallel-size": "2"}}
	return ws
}

// TestGroups runs the stories of models on several machines.
func TestGroups(t *testing.T) {
	stories := []struct {
		reason string
		tell   func(*testing.T, *life)
	}{
		{"two machines in one zone, two sets, ready once both members are", groupServes},
		{"one machine is refused in the zone of the other, and both come from another zone", groupChangesZone},
		{"a worker's engine ends, and the group is replaced once", workerEnds},
		{"the leader's engine ends first, and the group is replaced once", leaderEnds},
		{"a group that fails again is replaced at once, and its engines start later", groupFailsAgain},
		{"another configuration rolls the group, and its number stays", groupRolls},
		{"a pod that is deleted by hand is made again, and what its fellow says of it replaces the group", memberDeleted},
		{"a settled group costs no writes", groupSettles},
		{"a suspended group leaves nothing, and comes back", groupSuspended},
	}
	life := enter(t).begin(t, faults.NewRecorder())
	for _, story := range stories {
		t.Run(story.reason, func(t *testing.T) {
			t.Parallel()
			story.tell(t, life)
		})
	}
}

// serve brings a group up.
func (w *world) serve(t *testing.T, name string) *v1beta1.Workspace {
	t.Helper()
	ws := groupForm(w.namespace(t), name)
	w.create(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)
	return ws
}

// groupChangesZone has a zone run out of machines after the first: after a refusal in that zone, the best machine type
// stays usable in the others.
func groupChangesZone(t *testing.T, life *life) {
	w := life.world
	namespace := w.namespace(t)
	w.karpenter.Play(namespace, cloudscript.Script{Cloud: cloudscript.Azure, Rules: []cloudscript.Rule{
		{Zone: "eastus-1", Skip: 1, Outcome: cloudscript.NoCapacity},
	}})
	ws := groupForm(namespace, "moves")
	ws.Resource.InstanceType = zoneType
	w.create(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)
	var attempts, zones []string
	for _, a := range ws.Status.Attempts {
		attempts = append(attempts, a.InstanceType+" "+a.Reason)
	}
	if diff := cmp.Diff([]string{zoneType + " NoCapacity", zoneType + " "}, attempts); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	if scope := ws.Status.Attempts[0].Scope; !strings.Contains(scope, "eastus-1") {
		t.Errorf("the refusal rules out %q, want the one zone", scope)
	}
	for _, claim := range w.claims(t, ws) {
		zones = append(zones, claim.Labels[corev1.LabelTopologyZone])
	}
	if diff := cmp.Diff([]string{"eastus-2", "eastus-2"}, zones); diff != "" {
		t.Errorf("zones (-want +got):\n%s", diff)
	}
	if got := w.karpenter.ClaimsEver(ws.UID); got != 4 {
		t.Errorf("NodeClaims ever made: %d, want 4: two, of which one is refused, and two", got)
	}
}

// member is one pod of a group by its rank.
func member(ws *v1beta1.Workspace, rank int) types.NamespacedName {
	name := ws.Name + "-0"
	if rank > 0 {
		name = fmt.Sprintf("%s-worker-%d", ws.Name, rank)
	}
	return types.NamespacedName{Namespace: ws.Namespace, Name: name}
}

// uids of the members, by rank; empty for one that is not there.
func (w *world) uids(t *testing.T, ws *v1beta1.Workspace) [2]types.UID {
	t.Helper()
	var out [2]types.UID
	for rank := range out {
		pod := &corev1.Pod{}
		if err := client.IgnoreNotFound(w.client.Get(t.Context(), member(ws, rank), pod)); err != nil {
			t.Fatal(err)
		}
		out[rank] = pod.UID
	}
	return out
}

// number of the group, as the leader's set has it.
func (w *world) number(t *testing.T, ws *v1beta1.Workspace) int {
	t.Helper()
	set := &appsv1.StatefulSet{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), set); err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(set.Spec.Template.Annotations[v1beta1.AnnotationGroup])
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// endEngine makes the kubelet report a restart of a member's engine.
func (w *world) endEngine(t *testing.T, ws *v1beta1.Workspace, rank int, code int32) {
	t.Helper()
	now := metav1.Now()
	begun := metav1.NewTime(now.Add(-time.Minute))
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: begun}}
	w.reports(t, ws, 1-rank, func(status *corev1.PodStatus) {
		if len(status.ContainerStatuses) == 0 {
			status.ContainerStatuses = []corev1.ContainerStatus{{Name: ws.Name, State: running}}
		}
	})
	w.reports(t, ws, rank, func(status *corev1.PodStatus) {
		status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: ws.Name, RestartCount: 1, State: running,
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: code, Reason: "Error", StartedAt: begun, FinishedAt: now,
			}},
		}}
	})
}

func (w *world) reports(t *testing.T, ws *v1beta1.Workspace, rank int, change func(*corev1.PodStatus)) {
	t.Helper()
	eventually(t, "reporting about a pod", func() (bool, string) {
		pod := &corev1.Pod{}
		if err := w.client.Get(t.Context(), member(ws, rank), pod); err != nil {
			return false, err.Error()
		}
		change(&pod.Status)
		err := w.client.Status().Update(t.Context(), pod)
		return err == nil, fmt.Sprint(err)
	})
}

// untilReplaced waits until every member is another pod than before, and the group answers.
func (w *world) untilReplaced(t *testing.T, ws *v1beta1.Workspace, before [2]types.UID) {
	t.Helper()
	eventually(t, "another group that is ready", func() (bool, string) {
		now := w.uids(t, ws)
		for rank := range now {
			if now[rank] == "" || now[rank] == before[rank] {
				return false, fmt.Sprintf("members %v, before %v", now, before)
			}
		}
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		return condition(ws, v1beta1.ConditionReady).Status == metav1.ConditionTrue, saying(ws)
	})
}

// staysWhole checks that nothing more is replaced.
func (w *world) staysWhole(t *testing.T, ws *v1beta1.Workspace, number int) {
	t.Helper()
	whole := w.uids(t, ws)
	during(t, "the group is left alone", 2*time.Second, func() (bool, string) {
		now, is := w.uids(t, ws), w.number(t, ws)
		return now == whole && is == number, fmt.Sprintf("group %d, want %d; members %v, were %v", is, number, now, whole)
	})
}

func groupServes(t *testing.T, life *life) {
	w := life.world
	ws := w.serve(t, "serves")
	claims := w.claims(t, ws)
	if len(claims) != 2 {
		t.Fatalf("%d NodeClaims, want 2", len(claims))
	}
	zones := [2]string{claims[0].Labels[corev1.LabelTopologyZone], claims[1].Labels[corev1.LabelTopologyZone]}
	if zones[0] == "" || zones[0] != zones[1] {
		t.Errorf("the machines are in the zones %q", zones)
	}
	worker := &appsv1.StatefulSet{}
	if err := w.client.Get(t.Context(), types.NamespacedName{Namespace: ws.Namespace, Name: "serves-worker"}, worker); err != nil {
		t.Fatal(err)
	}
	args := strings.Join(worker.Spec.Template.Spec.Containers[0].Args, " ")
	for _, want := range []string{"--nnodes 2", "--node-rank $(POD_INDEX)", "--master-addr serves-0.serves-headless", "--headless"} {
		if !strings.Contains(args, want) {
			t.Errorf("a worker's arguments lack %q: %s", want, args)
		}
	}
	policy := &networkingv1.NetworkPolicy{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), policy); err != nil {
		t.Errorf("NetworkPolicy: %v", err)
	}
	if diff := cmp.Diff(2, int(ws.Status.TargetNodeCount)); diff != "" || len(ws.Status.WorkerNodes) != 2 {
		t.Errorf("targetNodeCount %d, workerNodes %v; want 2 of both", ws.Status.TargetNodeCount, ws.Status.WorkerNodes)
	}
}

func workerEnds(t *testing.T, life *life) {
	w := life.world
	ws := w.serve(t, "worker-ends")
	before := w.uids(t, ws)
	w.endEngine(t, ws, 1, 137)
	w.untilReplaced(t, ws, before)
	w.staysWhole(t, ws, 2)
	w.untilEvent(t, ws, v1beta1.ReasonGroupReplaced,
		"member worker-ends-worker-1 ended with exit code 137 (Error); all 2 members are replaced")
}

func leaderEnds(t *testing.T, life *life) {
	w := life.world
	ws := w.serve(t, "leader-ends")
	before := w.uids(t, ws)
	w.endEngine(t, ws, 0, 1)
	w.untilReplaced(t, ws, before)
	w.staysWhole(t, ws, 2)
}

func groupFailsAgain(t *testing.T, life *life) {
	w := life.world
	ws := w.serve(t, "again")
	before := w.uids(t, ws)
	w.endEngine(t, ws, 1, 1)
	w.untilReplaced(t, ws, before)
	second := w.uids(t, ws)
	w.endEngine(t, ws, 1, 1)
	failed := time.Now()
	// A leader that has lost a member cannot answer, so it is deleted at once. The next leader has the delay.
	w.untilReplaced(t, ws, second)
	if got := w.number(t, ws); got != 3 {
		t.Errorf("group %d, want 3", got)
	}
	for rank := range 2 {
		pod := &corev1.Pod{}
		if err := w.client.Get(t.Context(), member(ws, rank), pod); err != nil {
			t.Fatal(err)
		}
		held, err := time.Parse(time.RFC3339, pod.Annotations[v1beta1.AnnotationGroupNotBefore])
		if err != nil || held.Before(failed.Add(8*time.Second)) || held.After(failed.Add(11*time.Second)) {
			t.Errorf("the engine of rank %d is held back until %s (%v), want ten seconds from %s", rank, held, err, failed)
		}
	}
}

func groupRolls(t *testing.T, life *life) {
	w := life.world
	ws := w.serve(t, "rolls")
	before := w.uids(t, ws)
	patch := client.MergeFrom(ws.DeepCopy())
	ws.Inference.Engine.Env = []v1beta1.EngineEnv{{Name: "NCCL_DEBUG", Value: "INFO"}}
	if err := w.client.Patch(t.Context(), ws, patch); err != nil {
		t.Fatal(err)
	}
	w.untilReplaced(t, ws, before)
	w.staysWhole(t, ws, 1)
}

func memberDeleted(t *testing.T, life *life) {
	w := life.world
	ws := w.serve(t, "deleted")
	before := w.uids(t, ws)
	if err := w.client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ws.Namespace, Name: "deleted-worker-1"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another worker", func() (bool, string) {
		now := w.uids(t, ws)
		return now[1] != "" && now[1] != before[1], fmt.Sprint(now)
	})
	now := metav1.Now()
	w.reports(t, ws, 0, func(status *corev1.PodStatus) {
		status.ContainerStatuses = []corev1.ContainerStatus{{Name: ws.Name, State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-time.Minute))},
		}}}
		status.InitContainerStatuses = []corev1.ContainerStatus{{
			Name: "weights", RestartCount: 1, LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 1, FinishedAt: now, Message: `{"reason":"MemberReplaced","message":"member \"deleted-worker-1.deleted-headless\" was replaced"}`,
			}},
		}}
	})
	w.untilReplaced(t, ws, before)
	w.untilEvent(t, ws, v1beta1.ReasonGroupReplaced,
		`the agent of member deleted-0 ended (member "deleted-worker-1.deleted-headless" was replaced); all 2 members are replaced`)
}

func groupSettles(t *testing.T, life *life) {
	w := life.world
	ws := w.serve(t, "settles")
	w.passes(t, life, ws, 2)
	of := func() int {
		count := 0
		for _, write := range life.recorder.Writes() {
			if strings.Contains(write, ws.Namespace+"/") {
				count++
			}
		}
		return count
	}
	before := of()
	w.passes(t, life, ws, 3)
	if got := of(); got != before {
		t.Errorf("further passes wrote %d times: %v", got-before, life.recorder.Writes())
	}
}

func groupSuspended(t *testing.T, life *life) {
	w := life.world
	ws := w.serve(t, "suspended")
	suspend := func(is bool) {
		patch := client.MergeFrom(ws.DeepCopy())
		ws.Suspend = is
		if err := w.client.Patch(t.Context(), ws, patch); err != nil {
			t.Fatal(err)
		}
	}
	suspend(true)
	w.untilReleased(t, ws)
	eventually(t, "no pods", func() (bool, string) {
		now := w.uids(t, ws)
		return now == [2]types.UID{}, fmt.Sprint(now)
	})
	suspend(false)
	w.untilServing(t, ws)
}

// untilEvent waits for an Event about a Workspace.
func (w *world) untilEvent(t *testing.T, ws *v1beta1.Workspace, reason, message string) {
	t.Helper()
	eventually(t, "event "+reason, func() (bool, string) {
		list := &corev1.EventList{}
		if err := w.client.List(t.Context(), list, client.InNamespace(ws.Namespace)); err != nil {
			return false, err.Error()
		}
		var seen []string
		for i := range list.Items {
			if list.Items[i].Reason == reason {
				seen = append(seen, list.Items[i].Message)
				if list.Items[i].Message == message {
					return true, ""
				}
			}
		}
		return false, strings.Join(seen, "\n")
	})
}

// TestCrashInTheMiddleOfAGroup kills the controller at every write on the way from a member's end to the
// next group: whoever takes over replaces the group, and once.
func TestCrashInTheMiddleOfAGroup(t *testing.T) {
	w := enter(t)
	for _, moment := range []faults.Moment{faults.Before, faults.After} {
		for number := 1; !t.Failed(); number++ {
			crashed := false
			t.Run(fmt.Sprintf("%s write %d", moment, number), func(t *testing.T) {
				first := w.begin(t, faults.NewRecorder())
				ws := w.serve(t, "chat")
				w.passes(t, first, ws, 1)
				first.end(t)

				before := w.uids(t, ws)
				w.endEngine(t, ws, 1, 137)
				var second *life
				recorder := faults.CrashAt(number, moment, func() { second.cancel() })
				second = w.begin(t, recorder)
				eventually(t, "another group that is ready", func() (bool, string) {
					if recorder.Crashed() && !crashed {
						crashed = true
						second.end(t)
						w.begin(t, faults.NewRecorder())
					}
					now := w.uids(t, ws)
					if now[0] == "" || now[1] == "" || now[0] == before[0] || now[1] == before[1] {
						return false, fmt.Sprintf("members %v, before %v", now, before)
					}
					if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
						return false, err.Error()
					}
					return condition(ws, v1beta1.ConditionReady).Status == metav1.ConditionTrue, saying(ws)
				})
				if got := w.number(t, ws); got != 2 {
					t.Errorf("group %d, want 2", got)
				}
			})
			if !crashed {
				t.Logf("crashed %s each of %d writes", moment, number-1)
				if number < 5 {
					t.Errorf("the story had only %d writes: is the recorder in the way of all of them?", number-1)
				}
				break
			}
		}
	}
}
