// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engineprobe"
)

// ready sets whether the first replica is ready.
func (w *world) ready(t *testing.T, status metav1.ConditionStatus) {
	t.Helper()
	ws := &v1beta1.Workspace{}
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "chat-0"}, ws); err != nil {
		t.Fatal(err)
	}
	meta.SetStatusCondition(&ws.Status.Conditions, metav1.Condition{
		Type: v1beta1.ConditionInferenceReady, Status: status, Reason: "R", LastTransitionTime: metav1.NewTime(w.clock.Now()),
	})
	if err := w.Status().Update(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
}

// spell passes every 15 seconds for some time. The number of machines does not follow the set.
func (w *world) spell(t *testing.T, length time.Duration, running, waiting float64) {
	t.Helper()
	load := unread()
	load.Running, load.Waiting, load.KVCacheUse = running, waiting, 0.5
	w.load = map[string]engineprobe.Signals{address(0): load}
	for end := w.clock.Now().Add(length); w.clock.Now().Before(end); w.clock.SetTime(w.clock.Now().Add(UsualInterval)) {
		w.pass(t)
	}
}

// scaled returns the written numbers of replicas.
func (w *world) scaled() []string {
	return slices.DeleteFunc(w.written(), func(write string) bool { return !strings.HasPrefix(write, "scale ") })
}

// TestCrashingReplicaGetsHelp: the only replica crashes a minute after each start, because it has too much work. The set
// is woken with one replica, so nothing else is known about it. The mark of a crash outlasts a pause of the controller.
func TestCrashingReplicaGetsHelp(t *testing.T) {
	for reason, pause := range map[string]time.Duration{"the controller looks all the time": 0, "it looks at nothing for 5 minutes": 5 * time.Minute} {
		t.Run(reason, func(t *testing.T) {
			w := newWorld(t, set(0))
			w.wake(t, w.clock.Now())
			w.pass(t)
			w.run(t, 1)
			w.ready(t, metav1.ConditionFalse)
			w.spell(t, 3*time.Minute, 0, 0)
			w.ready(t, metav1.ConditionTrue)
			w.spell(t, time.Minute, 8, 92)
			if diff := cmp.Diff([]string{"scale 1"}, w.scaled()); diff != "" {
				t.Errorf("before the crash (-want +got):\n%s", diff)
			}
			w.ready(t, metav1.ConditionFalse)
			w.spell(t, 3*time.Minute, 0, 0)
			w.clock.SetTime(w.clock.Now().Add(pause))
			if got := w.scaled(); len(got) > 0 {
				t.Errorf("without any replica, the controller writes %v", got)
			}
			w.ready(t, metav1.ConditionTrue)
			w.spell(t, time.Minute, 8, 92)
			if diff := cmp.Diff([]string{"scale 2"}, w.scaled()); diff != "" {
				t.Errorf("after the crash (-want +got):\n%s", diff)
			}
		})
	}
}
