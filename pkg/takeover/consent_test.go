// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover_test

import (
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/takeover"
)

func adopted(t *testing.T) *v1beta1.Workspace {
	t.Helper()
	ws := &v1beta1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "chat", UID: "1", Generation: 2},
		Resource:   v1beta1.ResourceSpec{InstanceType: "Standard_NC24ads_A100_v4"},
		Inference:  &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "phi-4"}},
	}
	consent, err := takeover.NewConsent(ws, 5)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(consent)
	if err != nil {
		t.Fatal(err)
	}
	ws.Annotations = map[string]string{v1beta1.AnnotationAdopted: string(text)}
	return ws
}

func planned(reason string, generation int64) []metav1.Condition {
	return []metav1.Condition{{Type: v1beta1.ConditionPlanned, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: generation}}
}

func TestStateOf(t *testing.T) {
	edit := func(ws *v1beta1.Workspace) { ws.Generation, ws.Inference.Config = 3, "faster" }
	for _, test := range []struct {
		reason string
		change func(*v1beta1.Workspace)
		want   takeover.State
	}{
		{"as it was at the consent", func(*v1beta1.Workspace) {}, takeover.Frozen},
		{"nobody agreed", func(ws *v1beta1.Workspace) { ws.Annotations = nil }, takeover.Unadopted},
		{"a manifest was copied with the annotation", func(ws *v1beta1.Workspace) { ws.UID = "2" }, takeover.Unadopted},
		{"a consent for no Workspace", func(ws *v1beta1.Workspace) {
			ws.UID, ws.Annotations[v1beta1.AnnotationAdopted] = "", `{"generation":2}`
		}, takeover.Unadopted},
		{"a text that is no consent", func(ws *v1beta1.Workspace) { ws.Annotations[v1beta1.AnnotationAdopted] = "true" }, takeover.Unadopted},
		{"the model's configuration is edited", edit, takeover.Edited},
		{"the machine type is edited", func(ws *v1beta1.Workspace) { ws.Generation, ws.Resource.InstanceType = 3, "" }, takeover.Edited},
		{"the edit is reverted", func(ws *v1beta1.Workspace) { edit(ws); ws.Generation, ws.Inference.Config = 4, "" }, takeover.Frozen},
		{"a label is added", func(ws *v1beta1.Workspace) { ws.Labels = map[string]string{"team": "a"} }, takeover.Frozen},
		{"a field is set that KAITO's pods do not follow", func(ws *v1beta1.Workspace) { ws.Generation, ws.Suspend = 3, true }, takeover.Frozen},
		{"it was suspended and resumed before a later version of the program, which encodes the same spec in another way", func(ws *v1beta1.Workspace) {
			ws.Generation, ws.Annotations[v1beta1.AnnotationAdopted] = 4, `{"uid":"1","generation":2,"spec":"other"}`
			ws.Status.Conditions = planned(v1beta1.ReasonFrozen, 4)
		}, takeover.Frozen},
		{"the edit came after the last pass over a frozen Workspace", func(ws *v1beta1.Workspace) {
			edit(ws)
			ws.Status.Conditions = planned(v1beta1.ReasonFrozen, 2)
		}, takeover.Edited},
		{"a pass has planned the edit", func(ws *v1beta1.Workspace) {
			edit(ws)
			ws.Status.Conditions = planned(v1beta1.ReasonPlanAccepted, 3)
		}, takeover.Edited},
		{"a manifest was copied with annotation and status", func(ws *v1beta1.Workspace) {
			ws.UID, ws.Status.Conditions = "2", planned(v1beta1.ReasonFrozen, 2)
		}, takeover.Unadopted},
		{"a later version of the program encodes the same spec in another way", func(ws *v1beta1.Workspace) {
			ws.Annotations[v1beta1.AnnotationAdopted] = `{"uid":"1","generation":2,"spec":"other"}`
		}, takeover.Frozen},
	} {
		t.Run(test.reason, func(t *testing.T) {
			ws := adopted(t)
			test.change(ws)
			if got := takeover.StateOf(ws); got != test.want {
				t.Errorf("state %q, want %q", got, test.want)
			}
		})
	}
}

// TestWantedPods: the number comes from the consent, because an edit overwrites the number in the status.
func TestWantedPods(t *testing.T) {
	ws := adopted(t)
	ws.Status.TargetNodeCount = 1
	if got := takeover.WantedPods(ws); got != 5 {
		t.Errorf("%d pods, want those of the consent", got)
	}
	ws.UID, ws.Status.TargetNodeCount = "2", 3
	if got := takeover.WantedPods(ws); got != 3 {
		t.Errorf("%d pods without a consent, want those of the status", got)
	}
	ws.Status.TargetNodeCount = 0
	if got := takeover.WantedPods(ws); got != 1 {
		t.Errorf("%d pods without any number, want 1", got)
	}
}

// TestNumbersOfPodsAreBounded: users of the namespace can write the annotation, and each pod counts as a machine under
// ceilings that others share.
func TestNumbersOfPodsAreBounded(t *testing.T) {
	for _, pods := range []int{-1, 65, 2_000_000_000} {
		ws := adopted(t)
		ws.Annotations[v1beta1.AnnotationAdopted] = fmt.Sprintf(`{"uid":%q,"generation":%d,"pods":%d}`, ws.UID, ws.Generation, pods)
		if got := takeover.StateOf(ws); got != takeover.Unadopted {
			t.Errorf("%d pods: state %q, want no takeover", pods, got)
		}
		if got := takeover.WantedPods(ws); got > 64 {
			t.Errorf("%d pods count as %d", pods, got)
		}
	}
}
