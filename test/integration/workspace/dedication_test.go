// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"encoding/json"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// TestMachineIsForItsWorkspaceAlone buys two machines. One is for a new plan and has a taint that only the plan's pods
// tolerate. The other is for a plan of an earlier version. Its pods do not tolerate the taint, so the machine lacks it.
func TestMachineIsForItsWorkspaceAlone(t *testing.T) {
	w := enter(t)
	first := w.begin(t, faults.NewRecorder())
	ws := plannerForm(w.namespace(t), "chat")
	w.create(t, ws)
	w.untilServing(t, ws)
	if taints := w.taintsOf(t, ws); !slices.Equal(taints, []string{"sku=gpu:NoSchedule", "modelberth.dev/workspace-uid=" + string(ws.UID) + ":NoSchedule"}) {
		t.Errorf("the machine has the taints %v, want those of GPU machines and of its Workspace", taints)
	}
	w.patch(t, ws, func() { ws.Suspend = true })
	w.untilReleased(t, ws)
	first.end(t)

	w.pinAsEarlier(t, ws)
	w.begin(t, faults.NewRecorder())
	w.patch(t, ws, func() { ws.Suspend = false })
	w.untilServing(t, ws)
	if taints := w.taintsOf(t, ws); !slices.Equal(taints, []string{"sku=gpu:NoSchedule"}) {
		t.Errorf("the machine has the taints %v, and pods of an earlier version tolerate the first alone", taints)
	}
	w.remove(t, ws)
}

func (w *world) taintsOf(t *testing.T, ws *v1beta1.Workspace) []string {
	t.Helper()
	claims := w.claims(t, ws)
	if len(claims) != 1 {
		t.Fatalf("there are %d NodeClaims, want 1", len(claims))
	}
	var out []string
	for _, taint := range claims[0].Spec.Taints {
		out = append(out, taint.ToString())
	}
	return out
}

// pinAsEarlier rewrites the revisions of a Workspace as an earlier version pinned them, with a toleration only for the
// taint sku=gpu.
func (w *world) pinAsEarlier(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	revisions := &appsv1.ControllerRevisionList{}
	selected := client.MatchingLabels{v1beta1.LabelRevisionOwner: ws.Name}
	if err := w.client.List(t.Context(), revisions, client.InNamespace(ws.Namespace), selected); err != nil {
		t.Fatal(err)
	}
	if len(revisions.Items) == 0 {
		t.Fatal("there is no revision")
	}
	for i := range revisions.Items {
		former := &revisions.Items[i]
		pinned, err := render.Decode(former)
		if err != nil {
			t.Fatal(err)
		}
		pinned.Template.Spec.Tolerations = slices.DeleteFunc(pinned.Template.Spec.Tolerations, func(toleration corev1.Toleration) bool {
			return toleration.Key == v1beta1.TaintKeyWorkspace
		})
		raw, err := json.Marshal(pinned)
		if err != nil {
			t.Fatal(err)
		}
		earlier := former.DeepCopy()
		earlier.ObjectMeta = metav1.ObjectMeta{
			Namespace: former.Namespace, Name: former.Name, Labels: former.Labels, Annotations: former.Annotations, OwnerReferences: former.OwnerReferences,
		}
		earlier.Data = runtime.RawExtension{Raw: raw}
		if err := w.client.Delete(t.Context(), former); err != nil { // its content is immutable
			t.Fatal(err)
		}
		if err := w.client.Create(t.Context(), earlier); err != nil {
			t.Fatal(err)
		}
	}
}
