// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/workload"
)

// The attempt reads back as written. It replaces an earlier attempt and keeps the pods' own selectors.
func TestPinToAttempt(t *testing.T) {
	set := &appsv1.StatefulSet{}
	if got := workload.PinnedAttempt(set); got != 0 {
		t.Errorf("pods that never moved select attempt %d", got)
	}
	shared := map[string]string{"disk": "fast"}
	set.Spec.Template.Spec.NodeSelector = shared
	workload.PinToAttempt(set, 2)
	workload.PinToAttempt(set, 3)
	want := map[string]string{"disk": "fast", v1beta1.LabelMachineAttempt: "3"}
	if diff := cmp.Diff(want, set.Spec.Template.Spec.NodeSelector); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := workload.PinnedAttempt(set); got != 3 || len(shared) != 1 {
		t.Errorf("attempt %d, want 3; the selector that was given is now %v", got, shared)
	}
	set.Spec.Template.Spec.NodeSelector[v1beta1.LabelMachineAttempt] = "somebody's"
	if got, none := workload.PinnedAttempt(set), workload.PinnedAttempt(nil); got != 0 || none != 0 {
		t.Errorf("attempts %d, %d of what names none", got, none)
	}
}
