// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/app"
	"github.com/modelberth/modelberth/pkg/settings"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// createSettings creates a ConfigMap with settings.
func (w *world) createSettings(t *testing.T, namespace string, data map[string]string) types.NamespacedName {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "settings"}, Data: data}
	if err := w.client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	return client.ObjectKeyFromObject(object)
}

// setSettings replaces the data of a ConfigMap with settings.
func (w *world) setSettings(t *testing.T, name types.NamespacedName, data map[string]string) {
	t.Helper()
	object := &corev1.ConfigMap{}
	if err := w.client.Get(t.Context(), name, object); err != nil {
		t.Fatal(err)
	}
	object.Data = data
	if err := w.client.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// TestSettingsReload changes the limits under a running controller: the waiting Workspace gets its machine, and nothing
// touches the serving one. A mistake changes nothing, and is reported.
func TestSettingsReload(t *testing.T) {
	w := enter(t)
	namespace := w.namespace(t)
	name := w.createSettings(t, namespace, map[string]string{"spending-per-namespace": "4"})
	o := w.options()
	level := zap.NewAtomicLevel()
	o.Settings, o.LogLevel = name, &level
	life := w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, o)
	first, second, third := named(namespace, "first", dear), named(namespace, "second", dear), named(namespace, "third", cheap)
	w.create(t, first)
	w.untilCondition(t, first, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	w.create(t, second)
	w.untilCondition(t, second, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, v1beta1.ReasonSpendingCeiling)
	during(t, "nothing is sent while it waits", time.Second, quiet(life))

	w.setSettings(t, name, map[string]string{"spending-per-namespace": "-1", "zap-log-level": "debug"})
	w.untilSettings(t, name, settings.ReasonRefused, "--spending-per-namespace is -1: it must be a price above 0")
	if level.Level() != zapcore.InfoLevel {
		t.Errorf("the log level is %s: half of refused settings is in use", level)
	}
	w.untilCondition(t, second, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, v1beta1.ReasonSpendingCeiling)

	served := life.recorder.Writes()
	w.setSettings(t, name, map[string]string{"spending-per-namespace": "8", "zap-log-level": "debug"})
	w.untilCondition(t, second, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	w.untilSettings(t, name, settings.ReasonChanged, `spending-per-namespace from "4" to "8"`)
	if level.Level() != zapcore.DebugLevel {
		t.Errorf("the log level is %s, want debug", level)
	}
	for _, write := range life.recorder.Writes()[len(served):] {
		if strings.Contains(write, "first") {
			t.Errorf("the serving Workspace is written: %s", write)
		}
	}

	// A machine type that is no longer allowed stays, and is not bought again.
	w.setSettings(t, name, map[string]string{"spending-per-namespace": "8", "allow-instance-type": dear})
	w.untilSettings(t, name, settings.ReasonChanged, `allow-instance-type from "" to "`+dear+`"`)
	w.create(t, third)
	w.untilCondition(t, third, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonNoMachineAllowed)
	w.setSettings(t, name, map[string]string{"spending-per-namespace": "9"})
	w.untilCondition(t, third, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	during(t, "nothing is sent once all serve", time.Second, quiet(life))
	if level.Level() != zapcore.InfoLevel {
		t.Errorf("the log level is %s after the removal of its key, want the default", level)
	}
	life.end(t)

	// The next process has no previous settings.
	w.setSettings(t, name, map[string]string{"spending-cluster": "much"})
	_, err := app.NewManager(t.Context(), w.config, o, app.Hooks{SkipNameValidation: true})
	if want := `--settings-config-map: ConfigMap ` + name.String() + `: spending-cluster is "much": it must be a number in USD per hour, such as 98.5`; err == nil || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
	w.setSettings(t, name, nil)
	w.begin(t, faults.NewRecorder()) // for the end of the Workspaces
}

// TestWaitingReplicaFollowsSettings: a standby replica watches its settings, too. It would otherwise end after waiting
// two minutes for them.
func TestWaitingReplicaFollowsSettings(t *testing.T) {
	w := enter(t)
	namespace := w.namespace(t)
	name := w.createSettings(t, namespace, nil)
	replica := func() (*life, *zap.AtomicLevel) {
		o := w.options()
		level := zap.NewAtomicLevel()
		o.Settings, o.LogLevel = name, &level
		o.LeaderElect, o.LeaderElectionNamespace = true, namespace
		return w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, o), &level
	}
	leader, levelOfLeader := replica()
	eventually(t, "the first replica leads", func() (bool, string) { return leader.watches.Load() > 1, "it watches nothing" })
	_, levelOfNext := replica()
	w.setSettings(t, name, map[string]string{"zap-log-level": "debug"})
	for which, level := range map[string]*zap.AtomicLevel{"leader": levelOfLeader, "other replica": levelOfNext} {
		eventually(t, "the "+which+" uses the new settings", func() (bool, string) {
			return level.Level() == zapcore.DebugLevel, "its log level is " + level.String()
		})
	}
}

// untilSettings waits for an event about the ConfigMap with settings.
func (w *world) untilSettings(t *testing.T, name types.NamespacedName, reason, text string) {
	t.Helper()
	var seen []string
	eventually(t, "event "+reason, func() (bool, string) {
		list := &corev1.EventList{}
		if err := w.client.List(context.Background(), list, client.InNamespace(name.Namespace)); err != nil {
			return false, err.Error()
		}
		seen = nil
		for i := range list.Items {
			event := &list.Items[i]
			if event.InvolvedObject.Kind == "ConfigMap" && event.InvolvedObject.Name == name.Name {
				seen = append(seen, event.Reason+" "+event.Message)
			}
			if event.Reason == reason && strings.Contains(event.Message, text) {
				return true, ""
			}
		}
		return false, strings.Join(seen, "\n")
	})
}
