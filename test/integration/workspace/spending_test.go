// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// named is a Workspace that runs on one machine type only.
func named(namespace, name, instanceType string) *v1beta1.Workspace {
	ws := kaitoForm(namespace, name)
	ws.Resource.InstanceType = instanceType
	return ws
}

// spend starts the controller with a ceiling per namespace: the stories beside this one spend elsewhere.
func (w *world) spend(t *testing.T, perNamespace float64) *life {
	t.Helper()
	o := w.options()
	o.Spending.PerNamespace = perNamespace
	return w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, o)
}

// TestSpendingCeiling runs the story of two Workspaces that together exceed a ceiling.
func TestSpendingCeiling(t *testing.T) {
	w := enter(t)
	life := w.spend(t, 4)
	namespace := w.namespace(t)
	first, second := named(namespace, "first", dear), named(namespace, "second", dear)
	w.create(t, first)
	w.untilCondition(t, first, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	w.create(t, second)
	w.untilCondition(t, second, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, v1beta1.ReasonSpendingCeiling)
	message := meta.FindStatusCondition(second.Status.Conditions, v1beta1.ConditionNodeClaimReady).Message
	for _, part := range []string{
		"spending.perNamespace is $4.00/h for namespace " + namespace, dear + " ($3.67/h) would exceed it by $3.35/h", "first ($3.67/h)",
	} {
		if !strings.Contains(message, part) {
			t.Errorf("message %q lacks %q", message, part)
		}
	}
	during(t, "nothing is sent while it waits", 2*time.Second, quiet(life))

	// A restart with a lower ceiling takes nothing away.
	life.end(t)
	w.spend(t, 3.7)
	during(t, "the first one serves on", 2*time.Second, func() (bool, string) {
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(first), first)
		return err == nil && meta.FindStatusCondition(first.Status.Conditions, v1beta1.ConditionReady).Status == metav1.ConditionTrue, saying(first)
	})

	// The end of the first one wakes the second.
	if err := w.client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	w.untilCondition(t, second, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	claims := &karpv1.NodeClaimList{}
	if err := w.client.List(t.Context(), claims, client.MatchingLabels{v1beta1.LabelWorkspaceUID: string(second.UID)}); err != nil {
		t.Fatal(err)
	}
	if price := claims.Items[0].Annotations[v1beta1.AnnotationHourlyPrice]; price != "3.673" {
		t.Errorf("the NodeClaim is priced at %q, want 3.673", price)
	}
}

// TestPlansKeepToLimits checks the message about each limit of a plan.
func TestPlansKeepToLimits(t *testing.T) {
	w := enter(t)
	tests := []struct {
		reason   string
		spending options.Spending
		make     func(namespace, name string) *v1beta1.Workspace
		want     string
	}{
		{
			"a plan that no ceiling will ever allow",
			options.Spending{PerNamespace: 3},
			func(namespace, name string) *v1beta1.Workspace { return named(namespace, name, dear) },
			"above the administrator's ceiling spending.perNamespace of $3.00/h: have the administrator raise the ceiling",
		},
		{
			"the default limit",
			options.Spending{DefaultMaxHourlyPrice: 3},
			func(namespace, name string) *v1beta1.Workspace { return named(namespace, name, dear) },
			"above this installation's default limit of $3.00/h: set resource.placement.maxHourlyPrice",
		},
		{
			"a machine type that is not allowed",
			options.Spending{InstanceTypes: []string{"Standard_NC*T4*"}},
			func(namespace, name string) *v1beta1.Workspace { return named(namespace, name, dear) },
			"the administrator does not allow " + dear + ": name one of Standard_NC*T4*",
		},
	}
	for i, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			o := w.options()
			o.Spending = test.spending
			w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, o)
			ws := test.make(w.namespace(t), fmt.Sprintf("chat-%d", i))
			w.create(t, ws)
			w.untilCondition(t, ws, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonNoMachineAllowed)
			if message := meta.FindStatusCondition(ws.Status.Conditions, v1beta1.ConditionPlanned).Message; !strings.Contains(message, test.want) {
				t.Errorf("message %q lacks %q", message, test.want)
			}
		})
	}
}

// quiet returns a check: it reports whether there was no request to the API server since. Leader election is off.
func quiet(life *life) func() (bool, string) {
	time.Sleep(time.Second) // the latest state is written
	before := life.requests.Load()
	return func() (bool, string) {
		sent := life.requests.about("")[before:]
		return len(sent) == 0, strings.Join(sent, "\n")
	}
}

// TestCeilingOfNamespace tests an administrator's annotation of a namespace: an unreadable one stops purchases, and a
// raised one lets waiting Workspaces continue.
func TestCeilingOfNamespace(t *testing.T) {
	w := enter(t)
	life := w.spend(t, 100)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace(t)}}
	limit := func(value string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, v1beta1.AnnotationSpendingCeiling, value)
		if err := w.client.Patch(t.Context(), namespace, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	limit("4 USD")
	life.untilSeen(t, namespace)
	ws := named(namespace.Name, "chat", dear)
	w.create(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonSpendingCeilingInvalid)
	limit("3")
	w.untilCondition(t, ws, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonNoMachineAllowed)
	want := "above the administrator's ceiling modelberth.dev/spending-ceiling of $3.00/h: have the administrator raise the ceiling"
	if message := condition(ws, v1beta1.ConditionPlanned).Message; !strings.Contains(message, want) {
		t.Errorf("message %q lacks %q", message, want)
	}
	limit("4")
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	limit("1") // lowering takes nothing away
	during(t, "it serves on", 2*time.Second, func() (bool, string) {
		w.read(t, ws)
		return meta.IsStatusConditionTrue(ws.Status.Conditions, v1beta1.ConditionReady), saying(ws)
	})
}
