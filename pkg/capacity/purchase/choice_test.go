// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package purchase

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/capacity/preflight"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/revision"
	"github.com/modelberth/modelberth/pkg/sku"
)

var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func workspace(uid types.UID) *v1beta1.Workspace {
	return &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat", UID: uid}}
}

func accepted() *revision.Revision {
	return &revision.Revision{Name: "chat-0123456789", Revision: render.Revision{Plan: planner.Plan{
		InstanceType: "Standard_NC24ads_A100_v4", Nodes: 1, GPUResource: "nvidia.com/gpu", GPUsPerNode: 1, MachineGPUs: 1,
		CapacityType: v1beta1.CapacityOnDemand, HourlyPrice: 3.673,
	}}}
}

// noCatalog is a catalogue without machine types.
type noCatalog struct{}

func (noCatalog) ResolveSKU(string) (sku.SKU, error) { return sku.SKU{}, errors.New("unknown") }
func (noCatalog) SKUs() []sku.SKU                    { return nil }

// ranked is a planner with fixed plans, best first.
type ranked []planner.Plan

func (plans ranked) Plan(r planner.Request) (planner.Plan, error) {
	for _, plan := range plans {
		isLeftAlone := slices.ContainsFunc(r.Constraints.Excluded, func(e planner.Exclusion) bool {
			return e.InstanceType == plan.InstanceType
		})
		if !isLeftAlone {
			return plan, nil
		}
	}
	return planner.Plan{}, &planner.InfeasibleError{Reason: v1beta1.ReasonNoMachineAllowed, Message: "left alone"}
}

func (ranked) Quote(accepted planner.Plan, _ planner.Constraints) (planner.Plan, string) {
	return accepted, ""
}

// pair plans with A, or else with B, unless they are excluded.
var pair = ranked{
	{InstanceType: "A", Nodes: 2, GPUsPerNode: 1, MachineGPUs: 1, Accelerator: "T4"},
	{InstanceType: "B", Nodes: 2, GPUsPerNode: 1, MachineGPUs: 1, Accelerator: "T4"},
}

// TestHelp: if every type is cooling down, the message names the types that a larger quota would allow, if any.
func TestHelp(t *testing.T) {
	const (
		sooner  = "to retry sooner, allow more machine types, or use a cluster in another region; "
		retry   = ": once you have the quota, set the annotation modelberth.dev/retry-capacity to a new value"
		noQuota = "to retry sooner, allow more machine types, capacity types or zones, or use a cluster in another region"
	)
	left := func(name string, cause refusal.Cause) cooldown.Exclusion {
		return cooldown.Exclusion{Offering: refusal.Offering{InstanceType: name}, Cause: cause, Until: start.Add(time.Hour)}
	}
	tests := []struct {
		reason   string
		excluded []cooldown.Exclusion
		not      []string // allowed, whatever the cloud says
		cause    refusal.Cause
		want     string
	}{
		{
			"that of the accepted plan",
			[]cooldown.Exclusion{left("A", refusal.Quota), left("B", refusal.NoCapacity)},
			nil, refusal.Quota,
			sooner + "a larger quota would allow 2 × A (1 × T4)" + retry,
		},
		{
			"that of another one",
			[]cooldown.Exclusion{left("A", refusal.NoCapacity), left("B", refusal.Quota)},
			nil, refusal.NoCapacity,
			sooner + "a larger quota would allow 2 × B (1 × T4)" + retry,
		},
		{"no quota is in the way", []cooldown.Exclusion{left("A", refusal.NoCapacity), left("B", refusal.TimedOut)}, nil, refusal.NoCapacity, noQuota},
		{
			"a quota for what the Workspace does not allow opens nothing",
			[]cooldown.Exclusion{left("A", refusal.NoCapacity), left("B", refusal.Quota)},
			[]string{"B"},
			refusal.NoCapacity, noQuota,
		},
		{
			"the accepted plan stands, though it could not be made any more",
			[]cooldown.Exclusion{left("A", refusal.Quota)},
			[]string{"A", "B"},
			refusal.Quota,
			sooner + "once you have a larger quota, set the annotation modelberth.dev/retry-capacity to a new value",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			asked := planner.Request{}
			for _, name := range test.not {
				asked.Constraints.Excluded = append(asked.Constraints.Excluded, planner.Exclusion{InstanceType: name})
			}
			choice := New(Market{Planner: pair}).For(Buyer{})
			if got := choice.help(asked, test.excluded, test.cause); got != test.want {
				t.Errorf("\n got %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestTakeTurn: of two passes with the same offer after its cooldown, one requests it first, and the other reserves no
// money.
func TestTakeTurn(t *testing.T) {
	market := New(Market{
		Memory: &cooldown.Memory{}, Catalog: noCatalog{}, Clock: testclock.NewFakePassiveClock(start), Ledger: ledger.New(nil),
	})
	made := accepted()
	offer := market.Offering(made.Plan.InstanceType, "", made.Plan.CapacityType, "")
	market.Memory.Learn(start, refusal.Attempt{
		Asker: refusal.Asker{Workspace: "former"}, Offering: offer, Started: start.Add(-2 * time.Hour), Ended: start.Add(-2 * time.Hour), Cause: refusal.NoCapacity,
		Scope: refusal.Scope{
			Breadth: refusal.SKU, Name: offer.InstanceType, Zone: refusal.Any, CapacityType: offer.CapacityType,
		}, Cooldown: time.Hour,
	})
	first, second := market.For(Buyer{Workspace: workspace("uid-1")}), market.For(Buyer{Workspace: workspace("other")})
	if err := first.takeTurn(made); err != nil {
		t.Fatal(err)
	}
	err := second.takeTurn(made)
	if _, waits := errors.AsType[*progress.WaitingError](err); !waits {
		t.Errorf("error %v, want the second one to wait", err)
	}
	if err := first.takeTurn(made); err != nil {
		t.Errorf("the first one waits for itself: %v", err)
	}
}

// TestUnreadableCeilingIsNotNone: an invalid ceiling of a namespace is an error. It means neither no limit nor the
// default.
func TestUnreadableCeilingIsNotNone(t *testing.T) {
	usual := ledger.Ceilings{Workspace: 150, Namespace: 300, Cluster: 600}
	price := func(of float64) ledger.Ceilings {
		return ledger.Ceilings{Workspace: 150, Namespace: of, Cluster: 600, IsNamespaceOwn: true}
	}
	tests := []struct {
		reason      string
		annotations map[string]string
		want        ledger.Ceilings
		invalid     bool
	}{
		{"no annotation", map[string]string{"a": "b"}, usual, false},
		{"a whole price", map[string]string{v1beta1.AnnotationSpendingCeiling: "50"}, price(50), false},
		{"a price with cents, above the usual one", map[string]string{v1beta1.AnnotationSpendingCeiling: "450.5"}, price(450.5), false},
		{"empty", map[string]string{v1beta1.AnnotationSpendingCeiling: ""}, usual, true},
		{"nothing", map[string]string{v1beta1.AnnotationSpendingCeiling: "0"}, usual, true},
		{"below nothing", map[string]string{v1beta1.AnnotationSpendingCeiling: "-1"}, usual, true},
		{"with its currency", map[string]string{v1beta1.AnnotationSpendingCeiling: "50 USD"}, usual, true},
		{"a word", map[string]string{v1beta1.AnnotationSpendingCeiling: "unlimited"}, usual, true},
		{"what Go reads as a number", map[string]string{v1beta1.AnnotationSpendingCeiling: "Inf"}, usual, true},
		{"what no person means", map[string]string{v1beta1.AnnotationSpendingCeiling: "5e9"}, usual, true},
		{"with a comma", map[string]string{v1beta1.AnnotationSpendingCeiling: "1,5"}, usual, true},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			choice := New(Market{}).For(Buyer{
				Limits: Limits{Ceilings: usual}, Workspace: workspace("uid-1"), Namespace: metav1.ObjectMeta{Annotations: tt.annotations},
			})
			got, err := choice.ceilings()
			stalled, isStalled := errors.AsType[*progress.StalledError](err)
			if isStalled != tt.invalid || isStalled && stalled.Reason != v1beta1.ReasonSpendingCeilingInvalid {
				t.Errorf("error: got %v, want one of the condition: %t", err, tt.invalid)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("ceilings (-want +got):\n%s", diff)
			}
		})
	}
}

// tolerant returns a revision whose pods tolerate the taint of their Workspace, unlike those of earlier versions.
func tolerant() *revision.Revision {
	made := accepted()
	made.Template.Spec.Tolerations = []corev1.Toleration{
		{Key: v1beta1.TaintKey, Value: v1beta1.TaintValue}, {Key: v1beta1.TaintKeyWorkspace, Value: "uid-1"},
	}
	return made
}

// TestPurchase checks the inputs of the checks before a purchase.
func TestPurchase(t *testing.T) {
	ws := &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat", UID: "uid-1"}}
	class := v1beta1.NodeClassReference{Group: "some.dev", Kind: "SomeNodeClass", Name: "gpu"}
	for _, test := range []struct {
		reason    string
		change    func(*revision.Revision)
		resource  string
		tolerates bool
	}{
		{"a machine with GPUs", func(*revision.Revision) {}, "nvidia.com/gpu", true},
		{"a machine without", func(made *revision.Revision) { made.Plan.MachineGPUs = 0 }, "", true},
		{"pods of an earlier version", func(made *revision.Revision) { made.Template.Spec.Tolerations = nil }, "nvidia.com/gpu", false},
		{"workers of an earlier version", func(made *revision.Revision) { made.Worker = &corev1.PodTemplateSpec{} }, "nvidia.com/gpu", false},
	} {
		market := New(Market{NodeClasses: []v1beta1.NodeClassReference{class}, Catalog: noCatalog{}})
		made := tolerant()
		test.change(made)
		want := preflight.Purchase{
			Workspace: types.NamespacedName{Namespace: "team-a", Name: "chat"}, UID: "uid-1", InstanceType: made.Plan.InstanceType,
			GPUResource: test.resource, NodeClass: class, ToleratesDedication: test.tolerates,
		}
		got := market.For(Buyer{Workspace: ws}).Purchase(made)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.reason, diff)
		}
	}
}

// TestZonesComeFirst: a mistake in the spec is reported, whatever the state of the cluster.
func TestZonesComeFirst(t *testing.T) {
	market := New(Market{
		Catalog: noCatalog{}, NodeClasses: []v1beta1.NodeClassReference{{Group: "kaito.sh", Kind: "KaitoNodeClass", Name: "default"}},
	})
	made := accepted()
	made.Plan.Zones = []string{"eastus-1"}
	err := market.For(Buyer{Workspace: &v1beta1.Workspace{}}).checkPurchase(t.Context(), made)
	stalled, isStalled := errors.AsType[*progress.StalledError](err)
	if !isStalled || stalled.Reason != v1beta1.ReasonSpecInvalid || !strings.Contains(stalled.Message, "leave zones out") {
		t.Errorf("%v; want the zones that cannot be chosen", err)
	}
}
