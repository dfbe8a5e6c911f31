// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// While a namespace refuses the pods of a Workspace, no machine is bought. Soon after it admits them, one is.
func TestNamespaceThatRefusesPodsBuysNothing(t *testing.T) {
	quota := func(namespace string) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "no-gpus"},
			Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
				"requests.nvidia.com/gpu": resource.MustParse("0"),
			}},
		}
	}
	enforce := func(t *testing.T, w *world, namespace, level string) client.Object {
		t.Helper()
		object := &corev1.Namespace{}
		if err := w.client.Get(t.Context(), types.NamespacedName{Name: namespace}, object); err != nil {
			t.Fatal(err)
		}
		if object.Labels["pod-security.kubernetes.io/enforce"] = level; level == "" {
			delete(object.Labels, "pod-security.kubernetes.io/enforce")
		}
		if err := w.client.Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		return object
	}
	tests := []struct {
		reason string
		// forbid returns the object with the rule.
		forbid      func(t *testing.T, w *world, namespace string) client.Object
		permit      func(t *testing.T, w *world, namespace string)
		want, words string
	}{
		{
			reason: "a ResourceQuota",
			forbid: func(t *testing.T, w *world, namespace string) client.Object {
				t.Helper()
				object := quota(namespace)
				if err := w.client.Create(t.Context(), object); err != nil {
					t.Fatal(err)
				}
				return object
			},
			permit: func(t *testing.T, w *world, namespace string) {
				t.Helper()
				if err := w.client.Delete(t.Context(), quota(namespace)); err != nil {
					t.Fatal(err)
				}
			},
			want: v1beta1.ReasonResourceQuotaExceeded, words: "/no-gpus refuses the pods: its limit of requests.nvidia.com/gpu is 0, and the pods need 1",
		},
		{
			reason: "Pod Security",
			forbid: func(t *testing.T, w *world, namespace string) client.Object {
				t.Helper()
				return enforce(t, w, namespace, "restricted")
			},
			permit: func(t *testing.T, w *world, namespace string) { t.Helper(); enforce(t, w, namespace, "") },
			want:   v1beta1.ReasonPodSecurityViolation, words: "enforces the Pod Security level restricted",
		},
	}
	w := enter(t)
	life := w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, w.options())
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			ws := templateForm(w.namespace(t))
			life.untilSeen(t, tt.forbid(t, w, ws.Namespace))
			w.create(t, ws)
			w.untilCondition(t, ws, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, tt.want)
			if message := condition(ws, v1beta1.ConditionNodeClaimReady).Message; !strings.Contains(message, tt.words) ||
				!strings.HasPrefix(message, "nothing is bought yet: ") {
				t.Errorf("message %q lacks %q", message, tt.words)
			}
			during(t, "nothing is sent while it waits", 2*time.Second, quiet(life))
			if bought := len(w.claims(t, ws)) + w.karpenter.ClaimsEver(ws.UID); bought > 0 {
				t.Errorf("NodeClaims: %d, want none", bought)
			}
			tt.permit(t, w, ws.Namespace)
			w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, "")
		})
	}
}
