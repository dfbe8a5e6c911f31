// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/sim"
	"github.com/modelberth/modelberth/test/script"
)

// unseenMachine hides the requested machine from the controller's cache for longer than a cache is ever late: it is
// there all the time, so it has not vanished, and it is used soon after it is shown. Its events are over by then: the
// next look comes by backing off, after as long again as the machine was hidden.
func unseenMachine(t *testing.T, life *life) {
	w := life.world
	ws := kaitoForm(w.namespace(t), "chat")
	life.recorder.Hide(&karpv1.NodeClaimList{}, func(claim client.Object) bool {
		return claim.GetLabels()[v1beta1.LabelMachineWorkspaceNamespace] == ws.Namespace
	})
	w.create(t, ws)
	eventually(t, "a machine", func() (bool, string) { return w.karpenter.ClaimsEver(ws.UID) == 1, "none" })
	during(t, "one machine that has not vanished", 5*time.Second, func() (bool, string) {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		reason := ""
		for _, attempt := range ws.Status.Attempts {
			reason += attempt.Reason
		}
		return reason == "" && w.karpenter.ClaimsEver(ws.UID) == 1, saying(ws)
	})
	life.recorder.Show(&karpv1.NodeClaimList{})
	shown := time.Now()
	w.untilServing(t, ws)
	if took := time.Since(shown); took > longEnough {
		t.Errorf("ready %s after the cache shows its machine, want it sooner than a machine is asked for again (%s)", took, longEnough)
	}
	checkAttempts(t, ws, "1 ")
	w.remove(t, ws)
}

// pendingMachine has the cloud take its time, for longer than news of mere progress may wait.
func pendingMachine(t *testing.T, life *life) {
	const told, period = 2 * time.Second, 12 * time.Second
	w := life.world
	ws := kaitoForm(w.namespace(t), "chat")
	slow := script.Rule{Outcome: script.SlowCreate, Delay: metav1.Duration{Duration: told + 2*period}}
	w.karpenter.Play(ws.Namespace, script.Script{Rules: []script.Rule{slow}})
	w.create(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, v1beta1.ReasonNodeClaimNotReady)
	eventually(t, "its pods are made meanwhile", func() (bool, string) {
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), &appsv1.StatefulSet{})
		return err == nil, fmt.Sprint(err)
	})
	time.Sleep(told) // events are published a little later
	about := func() []string {
		return slices.Concat(life.requests.about("/"+ws.Namespace), life.requests.about(string(ws.UID)), life.requests.about(w.claims(t, ws)[0].Name))
	}
	before := len(about())
	time.Sleep(period)
	if sent := about()[before:]; len(sent) > 0 {
		t.Errorf("while the machine is being bought, %d requests were sent in %s, want none: %q", len(sent), period, sent)
	}
	w.remove(t, ws)
}

// unseenAttempt deletes a machine before the controller's cache shows its attempt: it must not be asked for again
// without a pause.
func unseenAttempt(t *testing.T, life *life) {
	const machine = "Standard_NC64as_T4_v3"
	w := life.world
	w.karpenter.Script(machine, sim.NoCapacity)
	ws := kaitoForm(w.namespace(t), "chat")
	ws.Resource.InstanceType = machine
	ws.Inference.Config = "settings"
	w.create(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonConfigNotFound)
	w.freeze(t, life, ws)
	if err := w.client.Create(t.Context(), configMap(ws.Namespace, threads(3))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a machine", func() (bool, string) { return w.karpenter.ClaimsEver(ws.UID) > 0, "none" })
	w.untilReleased(t, ws)
	during(t, "no second machine", time.Second, func() (bool, string) {
		count := w.karpenter.ClaimsEver(ws.UID)
		return count == 1, fmt.Sprintf("%d NodeClaims", count)
	})
	life.recorder.Thaw(client.ObjectKeyFromObject(ws))
	w.untilCondition(t, ws, v1beta1.ConditionResourceReady, metav1.ConditionFalse, v1beta1.ReasonNoCapacity)
	checkAttempts(t, ws, "1 NoCapacity")
	if got := w.karpenter.ClaimsEver(ws.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1", got)
	}
	w.remove(t, ws)
}

// checkAttempts compares the attempts of a Workspace, each with its number and end.
func checkAttempts(t *testing.T, ws *v1beta1.Workspace, want ...string) {
	t.Helper()
	var got []string
	for _, attempt := range ws.Status.Attempts {
		got = append(got, fmt.Sprintf("%d %s", attempt.Number, attempt.Reason))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
}
