// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/gpuplugin"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// tolerant is a revision whose pods tolerate the taint of their Workspace; earlier versions made others.
func tolerant() *revision {
	made := accepted(1)
	made.Template.Spec.Tolerations = []corev1.Toleration{
		{Key: v1beta1.TaintKey, Value: v1beta1.TaintValue}, {Key: v1beta1.TaintKeyWorkspace, Value: "uid-1"},
	}
	return made
}

// TestDedication: which machines get the taint of their Workspace.
func TestDedication(t *testing.T) {
	gpus := corev1.Toleration{Key: v1beta1.TaintKey, Operator: corev1.TolerationOpExists}
	everything := corev1.Toleration{Operator: corev1.TolerationOpExists}
	tests := []struct {
		reason string
		policy gpuplugin.Dedication
		change func(*site)
		want   bool
		// refused is in the message that says why nothing is bought; empty where something is.
		refused string
	}{
		{"the device plugin tolerates everything", gpuplugin.Auto, func(*site) {}, true, ""},
		{"it tolerates sku=gpu only", gpuplugin.Auto, func(at *site) { at.plugins = []client.Object{plugin(gpus)} }, false, ""},
		{"nodes bring their own", gpuplugin.Auto, func(at *site) { at.plugins = nil }, true, ""},
		{"nobody may look for plugins", gpuplugin.Auto, func(at *site) { at.forbidden = true }, false, ""},
		{"a GPU operator that has made no plugin yet", gpuplugin.Auto, func(at *site) { at.plugins, at.operator = nil, true }, false, ""},
		{"a GPU operator whose plugin tolerates everything", gpuplugin.Auto, func(at *site) { at.operator = true }, true, ""},
		{"a GPU operator, for a machine without GPUs", gpuplugin.Auto, func(at *site) {
			at.plugins, at.operator = nil, true
			at.change = func(made *revision) { made.Plan.MachineGPUs = 0 }
		}, true, ""},
		{"it is wanted", gpuplugin.Enabled, func(*site) {}, true, ""},
		{
			"it is wanted and the plugin does not tolerate it", gpuplugin.Enabled, func(at *site) { at.plugins = []client.Object{plugin(gpus)} }, false,
			"nothing is bought yet: the taint modelberth.dev/workspace-uid=UID:NoSchedule would keep DaemonSet gpus/nvidia-device-plugin off",
		},
		{"it is wanted and nobody may look", gpuplugin.Enabled, func(at *site) { at.forbidden = true }, true, ""},
		{"it is not wanted", gpuplugin.Disabled, func(*site) {}, false, ""},
		{"pods of an earlier version", gpuplugin.Auto, func(at *site) {
			at.change = func(made *revision) { made.Template.Spec.Tolerations = nil }
		}, false, ""},
		{"pods of an earlier version, where it is wanted", gpuplugin.Enabled, func(at *site) {
			at.plugins = []client.Object{plugin(gpus)}
			at.change = func(made *revision) { made.Template.Spec.Tolerations = nil }
		}, false, ""},
		{"workers of an earlier version", gpuplugin.Auto, func(at *site) {
			at.change = func(made *revision) { made.Worker = &corev1.PodTemplateSpec{} }
		}, false, ""},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			at := &site{class: described{state: refusal.ClassReady}, plugins: []client.Object{plugin(everything)}, change: func(*revision) {}}
			test.change(at)
			r, made := at.begin(t, testclock.NewFakePassiveClock(now.Time)), tolerant()
			r.Dedication, r.GPUPluginCheck = test.policy, false
			at.change(made)
			got, err := r.dedicates(t.Context(), made)
			if got != test.want || (err != nil) != (test.refused != "") {
				t.Errorf("got %t, %v; want %t", got, err, test.want)
			}
			stalled, isStalled := errors.AsType[*stalledError](err)
			if test.refused != "" && (!isStalled || stalled.reason != v1beta1.ReasonTaintNotTolerated ||
				stalled.retryAfter != time.Minute || !strings.Contains(stalled.message, test.refused)) {
				t.Errorf("refused by %v, want %q", err, test.refused)
			}
			if prepared := r.checkPrepared(t.Context(), made); (prepared != nil) != (test.refused != "") {
				t.Errorf("before anything is bought: %v", prepared)
			}
		})
	}
}

// TestTaintedMachineFitsNoEarlierPods: a plan whose pods could not run there does not take over a machine, for example after
// an edit is taken back.
func TestTaintedMachineFitsNoEarlierPods(t *testing.T) {
	plain := capacity.Machine{InstanceType: "Standard_NC24ads_A100_v4", CapacityType: v1beta1.CapacityOnDemand}
	tainted := plain
	tainted.Dedicated = true
	earlier, current := accepted(1), tolerant()
	for _, test := range []struct {
		reason  string
		made    *revision
		machine capacity.Machine
		want    bool
	}{
		{"earlier pods, a machine without", earlier, plain, true},
		{"earlier pods, a machine with the taint", earlier, tainted, false},
		{"pods that tolerate it, a machine that was bought before", current, plain, true},
		{"pods that tolerate it, a machine with the taint", current, tainted, true},
	} {
		if got := test.made.fits(&test.machine); got != test.want {
			t.Errorf("%s: fits is %t, want %t", test.reason, got, test.want)
		}
	}
}

// TestMissingTaintIsLoggedOnce: what keeps the taint away is news once, and again after it has changed.
func TestMissingTaintIsLoggedOnce(t *testing.T) {
	p := &preflight{}
	for i, test := range []struct {
		sentence string
		want     bool
	}{{"a", true}, {"a", false}, {"b", true}, {"a", true}} {
		if got := p.isNews(test.sentence); got != test.want {
			t.Errorf("%d: news %t, want %t", i, got, test.want)
		}
	}
}
