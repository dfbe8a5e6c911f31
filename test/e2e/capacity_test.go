// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Machine types of the stories below. What was refused is remembered, so no two stories, and no other test,
// ask for the same ones in the same way. The first of each story is the cheapest.
const (
	noQuotaType, noQuotaSibling, quotaNext = "Standard_NC40ads_H100_v5", "Standard_NC80adis_H100_v5", "Standard_NC96ads_A100_v4"
	halfRefusedType, halfRefusedNext       = "Standard_NV72ads_A10_v5", "Standard_NC48ads_A100_v4"
	evictedType, evictedNext               = "Standard_NC4as_T4_v3", "Standard_NC8as_T4_v3" // as spot
	noGPUsType, noGPUsNext                 = "Standard_NV36ads_A10_v5", "Standard_NV36adms_A10_v5"
	killedType                             = "Standard_NC64as_T4_v3"
)

// faults are what the cloud does wrong, in Azure's words: the second machine of two is one too many, and a
// spot machine is announced to be taken back when it serves.
const faults = `{"cloud": "azure", "rules": [
	{"sku": "` + noQuotaType + `", "outcome": "quota", "kind": "family"},
	{"sku": "` + halfRefusedType + `", "outcome": "noCapacity", "skip": 1},
	{"sku": "` + evictedType + `", "capacityType": "spot", "outcome": "evicted", "after": "25s", "notice": "90s"}
]}`

// TestCapacity has the cloud refuse machines and take one back, and somebody bring one along, all at once.
func TestCapacity(t *testing.T) {
	refuse(t, faults)
	tellAll(t, []story{
		{"a quota is named as one", quotaNamed},
		{"one machine of two is refused", halfRefused},
		{"a spot machine is taken back", evicted},
		{"a machine is brought along", broughtAlong},
	})
}

// story is one of several that run at the same time.
type story struct {
	name string
	tell func(*testing.T)
}

func tellAll(t *testing.T, stories []story) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.tell(t)
		})
	}
}

// wish is a Workspace that may run on some machine types.
func wish(name string, capacityType v1beta1.CapacityType, instanceTypes ...string) string {
	return fmt.Sprintf(`apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata:
  name: %s
resource:
  placement:
    instanceTypes: [%s]
    capacityTypes: [%s]
inference:
  preset:
    name: %s
`, name, strings.Join(instanceTypes, ", "), capacityType, tinyModel)
}

// quotaNamed has the quota of a family used up. A sibling in that family is not even asked for, whoever
// wants it.
func quotaNamed(t *testing.T) {
	ns := namespace(t)
	apply(t, ns, wish("chat", v1beta1.CapacityOnDemand, noQuotaType, noQuotaSibling, quotaNext))
	ws := waitAttempts(t, ns, "chat", noQuotaType+" Quota", quotaNext)
	const words = "vCPU quota for " + noQuotaType + " has been reached"
	if first := ws.Status.Attempts[0]; !strings.Contains(first.Message, words) || first.Fix == "" {
		t.Errorf("the first attempt ended with %q and the advice %q, want the cloud's words and what to do", first.Message, first.Fix)
	}
	apply(t, ns, wish("sibling", v1beta1.CapacityOnDemand, noQuotaSibling))
	sibling := types.NamespacedName{Namespace: ns, Name: "sibling"}
	for _, kind := range []string{v1beta1.ConditionResourceReady, v1beta1.ConditionReady} {
		condition := waitCondition(t, sibling, kind, v1beta1.ReasonQuota, seenTimeout)
		if !strings.Contains(condition.Message, "a larger quota") {
			t.Errorf("%s says %q, want what would help", kind, condition.Message)
		}
	}
	local.ledger.expect(t, workspace(t, ns, "sibling"), 0)

	ws = waitReady(t, ns, "chat")
	local.ledger.expect(t, ws, 2)
	expectAnswers(t, ws, tinyModel)
	told := kubectl(t, "describe", "workspace", "chat", "--namespace="+ns)
	expectText(t, told, words, "FallingBack")
	if _, events, _ := strings.Cut(told, "\nEvents:"); !strings.Contains(events, v1beta1.ReasonQuota) {
		t.Errorf("no event is called %s:\n%s", v1beta1.ReasonQuota, events)
	}
}

// halfRefused has the second of two machines refused in the zone of the first, which is given back, and then any
// in the other zones: two of the next type serve together.
func halfRefused(t *testing.T) {
	ns := namespace(t)
	form := strings.Replace(fmt.Sprintf(stagesWorkspace, 2), "instanceType: "+halfRefusedNext,
		"placement: {instanceTypes: ["+halfRefusedType+", "+halfRefusedNext+"]}", 1)
	apply(t, ns, form)
	ws := waitAttempts(t, ns, "stages", halfRefusedType+" NoCapacity", halfRefusedType+" NoCapacity", halfRefusedNext)
	ws = waitReady(t, ns, ws.Name)
	local.ledger.expect(t, ws, 5)
	expectHeld(t, ws, 2)
	expectMembers(t, ws, 2)
	expectAnswers(t, ws, vllmModel)
}

// evicted has a spot machine taken back, with notice: another one serves before it is gone.
func evicted(t *testing.T) {
	ns := namespace(t)
	apply(t, ns, wish("chat", v1beta1.CapacitySpot, evictedType, evictedNext))
	waitReady(t, ns, "chat")
	ws := waitAttempts(t, ns, "chat", evictedType+" Lost", evictedNext)
	if first := ws.Status.Attempts[0]; !strings.Contains(first.Message, "PreemptionScheduled") {
		t.Errorf("the first attempt ended with %q, want the node's word of it", first.Message)
	}
	if lost, next := ws.Status.Attempts[0].EndTime, ws.Status.Attempts[1].ReadyTime; next == nil || lost.Before(next) {
		t.Errorf("the first machine was let go at %s and the next usable at %s, want it first", lost, next)
	}
	noticed := ws.Status.Attempts[1].StartTime.Time
	ws = waitReady(t, ns, "chat")
	elapsed(t, "from the notice to another machine that serves", noticed)
	expectHeld(t, ws, 1)
	local.ledger.expect(t, ws, 2)
	expectAnswers(t, ws, tinyModel)
}

// waitAttempts waits until the attempts to get machines are as they should be, each as its machine type and
// why it ended. The last one has got its machines where it has not ended.
func waitAttempts(t *testing.T, ns, name string, want ...string) *v1beta1.Workspace {
	t.Helper()
	ws := &v1beta1.Workspace{}
	ctx, cancel := context.WithTimeout(t.Context(), readyTimeout)
	defer cancel()
	var got []string
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		if err := local.client.Get(ctx, types.NamespacedName{Namespace: ns, Name: name}, ws); err != nil {
			return false, err
		}
		got = nil
		isOver := false
		for _, a := range ws.Status.Attempts {
			got = append(got, strings.TrimSpace(a.InstanceType+" "+a.Reason))
			isOver = a.EndTime != nil || a.ReadyTime != nil
		}
		return isOver && cmp.Equal(want, got), nil
	})
	if err != nil {
		t.Fatalf("waited %s for %s to make the attempts %v: %v; they are %v", readyTimeout, name, want, err, got)
	}
	for i := 1; i < len(ws.Status.Attempts); i++ {
		before, next := ws.Status.Attempts[i-1], ws.Status.Attempts[i]
		t.Logf("%s: %s %s: %s; the next attempt began %s later", name, before.InstanceType, before.Reason, before.Message,
			next.StartTime.Sub(before.EndTime.Time).Round(time.Second))
	}
	return ws
}

// expectHeld checks that a Workspace has so many machines and no more, once the released ones are gone.
func expectHeld(t *testing.T, ws *v1beta1.Workspace, count int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("Workspace %s to hold %d machines", ws.Name, count), goneTimeout, func(ctx context.Context) (bool, error) {
		claims, err := claimsOf(ctx, ws.UID)
		return len(claims) == count, err
	})
}
