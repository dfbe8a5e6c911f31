// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/script"
)

// Machine types of the stories below; none shares its family with another refused one.
const (
	flakyType, stuckType, refusedType = "Standard_NC16as_T4_v3", "Standard_NC8as_T4_v3", "Standard_NV36ads_A10_v5"
)

// TestOutcomes runs the stories of a cloud's other failures, and then checks the operators' view.
func TestOutcomes(t *testing.T) {
	w := enterAlone(t)
	w.begin(t, faults.NewRecorder())
	t.Run("stories", func(t *testing.T) {
		for reason, tell := range map[string]func(*testing.T, *world){
			"a burst of errors of the cloud's API costs neither the machine type nor a second machine": errorsInBursts,
			"a machine that does not go is named by the Workspace that waits for it":                   stuckMachine,
			"a quota": refusedQuota,
		} {
			t.Run(reason, func(t *testing.T) {
				t.Parallel()
				tell(t, w)
			})
		}
	})
	got := gather(t)
	want := map[string]float64{
		"modelberth_capacity_attempts_total " + flakyType + " Ready":   1,
		"modelberth_capacity_attempts_total " + stuckType + " Ready":   1,
		"modelberth_capacity_attempts_total " + refusedType + " Quota": 1,
		"modelberth_capacity_cooldowns_active":                         1,
		"modelberth_capacity_seconds":                                  2,
		"modelberth_spending_usd_per_hour idle":                        0,
		"modelberth_spending_usd_per_hour pending":                     0,
		"modelberth_spending_usd_per_hour running":                     0,
		"modelberth_spending_wasted_usd_total":                         0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// outcome is a Workspace on one machine type; the cloud treats its requests by a rule.
func outcome(t *testing.T, w *world, instanceType string, rule script.Rule) *v1beta1.Workspace {
	t.Helper()
	ws := named(w.namespace(t), "chat", instanceType)
	w.karpenter.Play(ws.Namespace, script.Script{Cloud: script.Azure, Rules: []script.Rule{rule}})
	w.create(t, ws)
	return ws
}

func errorsInBursts(t *testing.T, w *world) {
	ws := outcome(t, w, flakyType, script.Rule{Outcome: script.APIError, Times: 3})
	w.untilCondition(t, ws, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, "CreateInstanceFailed")
	w.untilServing(t, ws)
	checkAttempts(t, ws, "1 ")
	if got := w.karpenter.ClaimsEver(ws.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1", got)
	}
	// A scrape reads caches, and they may be behind the API server of the checks above.
	eventually(t, "a machine that serves costs its price", func() (bool, string) {
		got := gather(t)["modelberth_spending_usd_per_hour running"]
		return got >= 1, fmt.Sprintf("%v USD/h", got)
	})
	w.remove(t, ws)
}

func stuckMachine(t *testing.T, w *world) {
	ws := outcome(t, w, stuckType, script.Rule{Outcome: script.Stuck, Delay: metav1.Duration{Duration: 3 * time.Second}})
	w.untilServing(t, ws)
	machine := w.claims(t, ws)[0].Name
	if err := w.client.Delete(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	w.untilCondition(t, ws, v1beta1.ConditionWorkspaceDeleting, metav1.ConditionTrue, v1beta1.ReasonWorkspaceDeleted)
	want := "waiting for machines to be deleted: " + machine + "; if one is stuck, kubectl describe nodeclaim shows why"
	eventually(t, "the machine is named", func() (bool, string) {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		return condition(ws, v1beta1.ConditionWorkspaceDeleting).Message == want && condition(ws, v1beta1.ConditionReady).Message == want, saying(ws)
	})
	w.untilGone(t, ws)
	w.checkNothingLeft(t, ws)
}

func refusedQuota(t *testing.T, w *world) {
	ws := outcome(t, w, refusedType, script.Rule{Outcome: script.Quota, Kind: "family"})
	w.untilCondition(t, ws, v1beta1.ConditionResourceReady, metav1.ConditionFalse, v1beta1.ReasonQuota)
	w.untilReleased(t, ws)
	w.remove(t, ws)
}

// gather returns the controller's metrics about machines, by name and labels; of a histogram how often something was observed.
func gather(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "modelberth_capacity_") && !strings.HasPrefix(family.GetName(), "modelberth_spending_") {
			continue
		}
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			out[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return out
}
