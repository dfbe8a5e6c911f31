// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

func configMap(namespace, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "settings"},
		Data:       map[string]string{v1beta1.InferenceConfigKey: text},
	}
}

// TestConfigMapIsFollowed: a ConfigMap counts from its creation, an unreadable one is reported, and an edit makes
// another revision and other pods on the same machine.
func TestConfigMapIsFollowed(t *testing.T) {
	w := enter(t)
	w.begin(t, faults.NewRecorder())
	ws := kaitoForm(w.namespace(t), "chat")
	ws.Inference.Config = "settings"
	w.create(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonConfigNotFound)

	config := configMap(ws.Namespace, "llamacpp: [")
	if err := w.client.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	w.untilCondition(t, ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonConfigInvalid)
	if got := w.karpenter.ClaimsEver(ws.UID); got != 0 {
		t.Errorf("NodeClaims ever made: %d, want none before the ConfigMap can be read", got)
	}

	w.patch(t, config, func() { config.Data[v1beta1.InferenceConfigKey] = "llamacpp:\n  threads: 3\n" })
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	w.untilArgs(t, ws, "--threads 3")
	first := ws.Status.Plan.Revision

	w.patch(t, config, func() { config.Data[v1beta1.InferenceConfigKey] = "llamacpp:\n  threads: 5\n" })
	w.untilArgs(t, ws, "--threads 5")
	eventually(t, "another revision in the status", func() (bool, string) {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		return ws.Status.Plan.Revision != first, first
	})
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, "")

	// An unreadable one does not stop running pods.
	w.patch(t, config, func() { config.Data[v1beta1.InferenceConfigKey] = "llamacpp: [" })
	w.untilCondition(t, ws, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonConfigInvalid)
	w.untilArgs(t, ws, "--threads 5")
	w.untilCondition(t, ws, v1beta1.ConditionInferenceReady, metav1.ConditionTrue, "")
	if got := w.karpenter.ClaimsEver(ws.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1: an edit of flags needs no other machine", got)
	}
	w.remove(t, ws)
}

// untilArgs waits until the pods are to be started with these arguments.
func (w *world) untilArgs(t *testing.T, ws *v1beta1.Workspace, want string) {
	t.Helper()
	eventually(t, want, func() (bool, string) {
		set := &appsv1.StatefulSet{}
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), set); err != nil {
			return false, err.Error()
		}
		args := strings.Join(set.Spec.Template.Spec.Containers[0].Args, " ")
		return strings.Contains(args+" ", want+" "), args
	})
}

// TestManyWorkspacesAtOnce: Workspaces do not block each other.
func TestManyWorkspacesAtOnce(t *testing.T) {
	w := enter(t)
	w.begin(t, faults.NewRecorder())
	namespace := w.namespace(t)
	all := make([]*v1beta1.Workspace, 0, 20)
	for i := range cap(all) {
		ws := plannerForm(namespace, fmt.Sprintf("chat-%d", i))
		w.create(t, ws)
		all = append(all, ws)
	}
	for _, ws := range all {
		w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, "")
		if got := w.karpenter.ClaimsEver(ws.UID); got != 1 {
			t.Errorf("%s: NodeClaims ever made: %d, want 1", ws.Name, got)
		}
	}
	for _, ws := range all {
		w.remove(t, ws)
	}
}
