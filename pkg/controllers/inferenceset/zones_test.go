// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/replicas"
)

// land is a stage with zones. A Workspace gets a node in the first of its zones that is not sold out.
type land struct {
	*stage
	soldOut []string
	// lack is the state of a Workspace without a machine.
	lack []metav1.Condition
}

// newLand makes a set in the zones x, y and z; spread may be nil.
func newLand(t *testing.T, count int32, spread *v1beta1.ZoneSpreadSpec, soldOut ...string) *land {
	t.Helper()
	l := &land{soldOut: soldOut, lack: waitingState}
	l.stage = newStage(t, func(set *v1beta1.InferenceSet) {
		set.Spec.Replicas, set.Spec.ZoneSpread = &count, spread
		set.Spec.Template.Resource.Placement = &v1beta1.PlacementSpec{Zones: []string{"x", "y", "z"}}
	})
	for _, zone := range []string{"w", "x", "y", "z"} {
		labels := map[string]string{corev1.LabelTopologyZone: zone}
		if err := l.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-in-" + zone, Labels: labels}}); err != nil {
			t.Fatal(err)
		}
	}
	l.shape = func(ws *v1beta1.Workspace) []metav1.Condition {
		i := slices.IndexFunc(ws.Resource.Placement.Zones, func(zone string) bool { return !slices.Contains(l.soldOut, zone) })
		if i < 0 && len(ws.Status.WorkerNodes) == 0 {
			return l.lack
		}
		if len(ws.Status.WorkerNodes) == 0 {
			zone := ws.Resource.Placement.Zones[i]
			ws.Status.WorkerNodes = []string{"node-in-" + zone}
		}
		return answering()
	}
	return l
}

// where maps the names of the replicas to their zones: "x" for a node in x, and "[x y]" without a node.
func (l *land) where(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, ws := range l.workspaces(t) {
		out[ws.Name] = fmt.Sprint(ws.Resource.Placement.Zones)
		node := &corev1.Node{}
		if len(ws.Status.WorkerNodes) == 0 {
			continue
		}
		if err := l.Get(t.Context(), client.ObjectKey{Name: ws.Status.WorkerNodes[0]}, node); err != nil {
			t.Fatal(err)
		}
		out[ws.Name] = node.Labels[corev1.LabelTopologyZone]
	}
	return out
}

func byZone(where map[string]string) map[string]int {
	out := map[string]int{}
	for _, zone := range where {
		out[zone]++
	}
	return out
}

// sum returns the numbers of replicas by zone, sorted.
func sum(where map[string]string) string {
	numbers := byZone(where)
	var out []string
	for _, zone := range slices.Sorted(maps.Keys(numbers)) {
		out = append(out, fmt.Sprintf("%s %d", zone, numbers[zone]))
	}
	return strings.Join(out, ", ")
}

// said returns the condition ZoneSpread; empty if there is none.
func (l *land) said(t *testing.T) string {
	t.Helper()
	found := meta.FindStatusCondition(l.set(t).Status.Conditions, v1beta1.ConditionZoneSpread)
	if found == nil {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", found.Status, found.Reason, found.Message)
}

func TestZoneSpread(t *testing.T) {
	l := newLand(t, 5, &v1beta1.ZoneSpreadSpec{})
	zones := func(zones ...string) func(*v1beta1.InferenceSetSpec) {
		return func(spec *v1beta1.InferenceSetSpec) { spec.Template.Resource.Placement.Zones = zones }
	}
	replicas := func(n int32) func(*v1beta1.InferenceSetSpec) {
		return func(spec *v1beta1.InferenceSetSpec) { spec.Replicas = &n }
	}
	steps := []struct {
		reason string
		edit   func(*v1beta1.InferenceSetSpec)
		want   string
		// events are those about replicas.
		events map[string]int
	}{
		{"a new set", func(*v1beta1.InferenceSetSpec) {}, "x 2, y 2, z 1", map[string]int{"ReplicaCreated": 5}},
		{"scaling up fills the emptiest zone", replicas(6), "x 2, y 2, z 2", map[string]int{"ReplicaCreated": 1}},
		{"scaling down takes from the most crowded", replicas(3), "x 1, y 1, z 1", map[string]int{"ReplicaDeleted": 3}},
		{
			"an edit in place moves none",
			func(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Config = "other" },
			"x 1, y 1, z 1",
			map[string]int{"ReplicaUpdated": 3},
		},
		{
			"an edit of fixed fields keeps the balance",
			func(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Preset.Name = "other" },
			"x 1, y 1, z 1",
			map[string]int{"ReplicaCreated": 3, "ReplicaDeleted": 3},
		},
		{"another order of the zones changes nothing", zones("z", "y", "x"), "x 1, y 1, z 1", map[string]int{}},
		{"nor does a further zone", zones("z", "y", "x", "w"), "x 1, y 1, z 1", map[string]int{}},
		{"which is next", replicas(4), "w 1, x 1, y 1, z 1", map[string]int{"ReplicaCreated": 1}},
		{"zero", replicas(0), "", map[string]int{"ReplicaDeleted": 4}},
		{"back again", replicas(2), "y 1, z 1", map[string]int{"ReplicaCreated": 2}},
		{
			"without a spread, replicas stay as they are",
			func(spec *v1beta1.InferenceSetSpec) { spec.ZoneSpread = nil }, "y 1, z 1",
			map[string]int{},
		},
		{"and new ones go where a machine is", replicas(3), "y 1, z 2", map[string]int{"ReplicaCreated": 1}},
		{
			"with a spread again, replicas stay as they are, and the one without a choice counts in its zone",
			func(spec *v1beta1.InferenceSetSpec) {
				spec.ZoneSpread = &v1beta1.ZoneSpreadSpec{}
				replicas(5)(spec)
			},
			"w 1, x 1, y 1, z 2",
			map[string]int{"ReplicaCreated": 2},
		},
	}
	for _, step := range steps {
		l.edit(t, step.edit)
		l.goOn(t)
		if diff := cmp.Diff(step.want, sum(l.where(t))); diff != "" {
			t.Errorf("%s: replicas by zone (-want +got):\n%s", step.reason, diff)
		}
		if diff := cmp.Diff(step.events, l.published()); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", step.reason, diff)
		}
	}
}

// TestForbiddenZone: an edit that forbids a zone updates only the replicas there.
func TestForbiddenZone(t *testing.T) {
	l := newLand(t, 3, &v1beta1.ZoneSpreadSpec{})
	l.goOn(t)
	l.published()
	l.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Template.Resource.Placement.Zones = []string{"y", "z"} })
	l.goOn(t)
	if diff := cmp.Diff(map[string]int{"ReplicaUpdated": 1}, l.published()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	var got []string
	for _, ws := range l.workspaces(t) {
		got = append(got, fmt.Sprint(ws.Resource.Placement.Zones, ws.Annotations[v1beta1.AnnotationZoneSpread]))
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"[y]y", "[y]y", "[z]z"}, got); diff != "" {
		t.Errorf("zones and annotations (-want +got):\n%s", diff)
	}
}

// TestOneHashForAllZones: the label that tells templates apart does not depend on the zone, nor does the record of the
// template's metadata.
func TestOneHashForAllZones(t *testing.T) {
	l := newLand(t, 3, &v1beta1.ZoneSpreadSpec{})
	l.goOn(t)
	hashes := map[string]int{}
	for _, ws := range l.workspaces(t) {
		hashes[ws.Labels[v1beta1.LabelTemplateHash]+ws.Annotations[v1beta1.AnnotationTemplateMetadata]]++
	}
	if len(hashes) != 1 || l.set(t).Status.CurrentRevision == "" {
		t.Errorf("hashes %v, want one", hashes)
	}
}

// TestRollbackKeepsZones: a rollout and its rollback leave the replicas where they are.
func TestRollbackKeepsZones(t *testing.T) {
	for _, failure := range []func(*v1beta1.InferenceSetSpec){breaks, fixed} {
		l := newLand(t, 3, &v1beta1.ZoneSpreadSpec{})
		shape := l.shape
		l.shape = func(ws *v1beta1.Workspace) []metav1.Condition {
			if conditions := shape(ws); ws.Inference.Config != "broken" {
				return conditions
			}
			return stalledState
		}
		l.goOn(t)
		l.edit(t, failure)
		l.fail(t)
		if got := sum(l.where(t)); got != "x 1, y 1, z 1" {
			t.Errorf("replicas by zone: %s", got)
		}
		l.expect(t, v1beta1.ReasonRolledBack, "", "", "")
	}
}

func TestRefusedZone(t *testing.T) {
	strict := &v1beta1.ZoneSpreadSpec{WhenUnsatisfiable: v1beta1.DoNotSchedule}
	noNode := []metav1.Condition{
		no(v1beta1.ConditionReady, v1beta1.ReasonNoMachineAllowed, "no node"), yes(v1beta1.ConditionStalled, v1beta1.ReasonNoMachineAllowed, "no node"),
		no(v1beta1.ConditionPlanned, v1beta1.ReasonNoMachineAllowed, "no node"),
	}
	poor := []metav1.Condition{
		no(v1beta1.ConditionReady, v1beta1.ReasonSpendingCeiling, "poor"), no(v1beta1.ConditionResourceReady, v1beta1.ReasonSpendingCeiling, "poor"),
	}
	tests := []struct {
		reason  string
		count   int32
		spread  *v1beta1.ZoneSpreadSpec
		soldOut []string
		lack    []metav1.Condition
		want    string
		// said is the condition. moved is how many times a replica got another zone.
		said  string
		moved int
	}{
		{
			"the others take its place", 4, &v1beta1.ZoneSpreadSpec{},
			[]string{"x"},
			waitingState, "y 2, z 2",
			"False ZonesUneven: replicas by zone: x 0, y 2, z 2. The difference is more than maxSkew (1). The set moves no replica that has " +
				"machines: to move one, delete a Workspace in y; the set creates its replacement in x", 2,
		},
		{
			"a larger skew is even", 4, &v1beta1.ZoneSpreadSpec{MaxSkew: 2},
			[]string{"x"},
			waitingState, "y 2, z 2",
			"True ZonesEven: replicas by zone: x 0, y 2, z 2", 2,
		},
		{
			"all are refused: each may use any", 2, &v1beta1.ZoneSpreadSpec{},
			[]string{"x", "y", "z"},
			waitingState, "[x z y] 1, [y z x] 1",
			"False ZoneRefused: replicas by zone: x 1, y 1, z 0. No machine in y, z, x for Workspace NAME: NoCapacity: sold out", 4,
		},
		{
			"a strict set waits", 4, strict,
			[]string{"x"},
			waitingState, "[x] 1, y 2, z 1",
			"False ZoneRefused: replicas by zone: x 1, y 2, z 1. No machine in x for Workspace NAME: NoCapacity: sold out. The Workspace waits in x: to use " +
				"any zone, set spec.zoneSpread.whenUnsatisfiable to ScheduleAnyway; to try the zones again, delete the Workspace", 1,
		},
		{"but not where no other replica is", 1, strict, []string{"x"}, waitingState, "y 1", "True ZonesEven: replicas by zone: x 0, y 1, z 0", 1},
		{"no node of the user's is there", 3, &v1beta1.ZoneSpreadSpec{}, []string{"x"}, noNode, "y 2, z 1", "", 1},
		{
			"money is no matter of zones", 1, &v1beta1.ZoneSpreadSpec{},
			[]string{"x"},
			poor, "[x] 1",
			"True ZonesEven: replicas by zone: x 1, y 0, z 0", 0,
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			l := newLand(t, test.count, test.spread, test.soldOut...)
			l.lack = test.lack
			l.goOn(t)
			if diff := cmp.Diff(test.want, sum(l.where(t))); diff != "" {
				t.Errorf("replicas by zone (-want +got):\n%s", diff)
			}
			said := l.said(t)
			for name := range l.where(t) {
				said = strings.ReplaceAll(said, name, "NAME")
			}
			if diff := cmp.Diff(test.said, said); diff != "" && test.said != "" {
				t.Errorf("the condition (-want +got):\n%s", diff)
			}
			if got := l.published()["ReplicaMoved"]; got != test.moved {
				t.Errorf("moved %d times, want %d", got, test.moved)
			}
			l.restart()
			before := l.writes
			l.goOn(t)
			if l.writes != before {
				t.Errorf("a restart wrote %d times", l.writes-before)
			}
		})
	}
}

// TestRefusedZoneOpensAgain: a strict set gets its machine when the zone has one again, or when it is strict no longer.
func TestRefusedZoneOpensAgain(t *testing.T) {
	strict := &v1beta1.ZoneSpreadSpec{WhenUnsatisfiable: v1beta1.DoNotSchedule}
	tests := []struct {
		reason string
		change func(*testing.T, *land)
		want   string
	}{
		{"the zone has a machine again", func(_ *testing.T, l *land) { l.soldOut = nil }, "x 1, y 1, z 1"},
		{"the set is strict no longer", func(t *testing.T, l *land) {
			l.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.ZoneSpread = &v1beta1.ZoneSpreadSpec{} })
		}, "y 2, z 1"},
		{"the set spreads no longer", func(t *testing.T, l *land) {
			l.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.ZoneSpread = nil })
		}, "y 2, z 1"},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			l := newLand(t, 3, strict, "x")
			l.goOn(t)
			if got := sum(l.where(t)); got != "[x] 1, y 1, z 1" {
				t.Fatalf("replicas by zone: %s", got)
			}
			before := l.where(t)
			test.change(t, l)
			l.goOn(t)
			after := l.where(t)
			if diff := cmp.Diff(test.want, sum(after)); diff != "" {
				t.Errorf("replicas by zone (-want +got):\n%s", diff)
			}
			for name, zone := range before {
				if !strings.HasPrefix(zone, "[") && after[name] != zone {
					t.Errorf("%s was in %s, and is in %s", name, zone, after[name])
				}
			}
		})
	}
}

// TestZonesSurviveCrashes: the answer to any write may be lost.
func TestZonesSurviveCrashes(t *testing.T) {
	for failing := 0; ; failing += 4 {
		l := newLand(t, 3, &v1beta1.ZoneSpreadSpec{}, "x")
		l.failing = failing
		l.goOn(t)
		l.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Replicas = new(int32(5)) })
		l.goOn(t)
		l.soldOut = nil
		l.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Preset.Name = "other" })
		l.goOn(t)
		_, _, skew := (&replicas.Spread{Zones: []string{"x", "y", "z"}}).Extremes(byZone(l.where(t)))
		if got := l.where(t); len(got) != 5 || skew > 1 {
			t.Fatalf("write %d: replicas by zone: %s", failing, sum(got))
		}
		if l.writes <= failing {
			return
		}
	}
}

// TestZonesAndOnDemandReplicas: both choices hold for the same replicas.
func TestZonesAndOnDemandReplicas(t *testing.T) {
	l := newLand(t, 0, &v1beta1.ZoneSpreadSpec{}, "z")
	l.edit(t, func(spec *v1beta1.InferenceSetSpec) {
		spec.Replicas, spec.OnDemandReplicas = new(int32(4)), 2
		spec.Template.Resource.Placement.CapacityTypes = []v1beta1.CapacityType{v1beta1.CapacitySpot, v1beta1.CapacityOnDemand}
	})
	l.goOn(t)
	got := map[string]int{}
	for name, zone := range l.where(t) {
		got[fmt.Sprint(zone, " spot ", l.kinds(t)[name])]++
	}
	want := map[string]int{"x spot false": 1, "y spot false": 1, "x spot true": 1, "y spot true": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("zones and kinds (-want +got):\n%s", diff)
	}
	before := l.where(t)
	l.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.OnDemandReplicas = 3 })
	l.goOn(t)
	if steady, spot := tally(l.kinds(t)); steady != 3 || spot != 1 {
		t.Errorf("%d steady and %d spot replicas, want 3 and 1", steady, spot)
	}
	if diff := cmp.Diff(before, l.where(t)); diff != "" {
		t.Errorf("a conversion moves replicas (-before +after):\n%s", diff)
	}
}

// TestEnablingZonesWritesNoReplica: a running set that begins to spread, such as one of KAITO's, restarts nothing.
func TestEnablingZonesWritesNoReplica(t *testing.T) {
	l := newLand(t, 3, nil)
	l.goOn(t)
	if got, said := sum(l.where(t)), l.said(t); got != "x 3" || said != "" {
		t.Fatalf("replicas by zone: %s; condition: %q", got, said)
	}
	l.published()
	l.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.ZoneSpread = &v1beta1.ZoneSpreadSpec{} })
	l.goOn(t)
	if diff := cmp.Diff(map[string]int{}, l.published()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if said := l.said(t); !strings.HasPrefix(said, "False ZonesUneven: replicas by zone: x 3, y 0, z 0. ") {
		t.Errorf("condition: %s", said)
	}
}

func TestNoMachineFor(t *testing.T) {
	open, ended := v1beta1.Attempt{Number: 1}, v1beta1.Attempt{Number: 1, EndTime: new(metav1.Now())}
	unready, refused := no(v1beta1.ConditionReady, "NoCapacity", "sold out"), no(v1beta1.ConditionResourceReady, "NoCapacity", "sold out")
	tests := []struct {
		reason     string
		conditions []metav1.Condition
		status     v1beta1.WorkspaceStatus
		want       problem
	}{
		{"nothing is known yet", nil, v1beta1.WorkspaceStatus{}, problem{}},
		{"all types are refused", []metav1.Condition{unready, refused}, v1beta1.WorkspaceStatus{}, problem{"NoCapacity", "sold out"}},
		{"after an attempt", []metav1.Condition{unready, refused}, v1beta1.WorkspaceStatus{Attempts: []v1beta1.Attempt{ended}}, problem{"NoCapacity", "sold out"}},
		{"an attempt goes on", []metav1.Condition{unready, refused}, v1beta1.WorkspaceStatus{Attempts: []v1beta1.Attempt{ended, open}}, problem{}},
		{"it has a node", []metav1.Condition{unready, refused}, v1beta1.WorkspaceStatus{WorkerNodes: []string{"n"}}, problem{}},
		{"it answers", []metav1.Condition{yes(v1beta1.ConditionReady, "Serving", ""), refused}, v1beta1.WorkspaceStatus{}, problem{}},
		{"a quota is not a zone's", []metav1.Condition{unready, no(v1beta1.ConditionResourceReady, "Quota", "")}, v1beta1.WorkspaceStatus{}, problem{}},
		{"no node of the user's is suitable", []metav1.Condition{unready, no(v1beta1.ConditionPlanned, "DoesNotFit", "small")}, v1beta1.WorkspaceStatus{}, problem{"DoesNotFit", "small"}},
		{"the template is at fault", []metav1.Condition{unready, no(v1beta1.ConditionPlanned, "ConfigNotFound", "")}, v1beta1.WorkspaceStatus{}, problem{}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			ws := &v1beta1.Workspace{Status: test.status}
			ws.Status.Conditions = test.conditions
			if diff := cmp.Diff(test.want, noMachineFor(ws)); diff != "" {
				t.Errorf("problem (-want +got):\n%s", diff)
			}
		})
	}
	stale := &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	stale.Status.Conditions = []metav1.Condition{unready, refused}
	if got := noMachineFor(stale); got != (problem{}) {
		t.Errorf("conditions of another generation count: %v", got)
	}
}

func TestSpreadOf(t *testing.T) {
	tests := []struct {
		reason string
		spec   *v1beta1.ZoneSpreadSpec
		zones  []string
		want   replicas.Spread
	}{
		{"no spread", nil, []string{"x", "y"}, replicas.Spread{}},
		{"the defaults", &v1beta1.ZoneSpreadSpec{}, []string{"x", "y"}, replicas.Spread{Zones: []string{"x", "y"}, MaxSkew: 1}},
		{
			"strict, and a zone named twice",
			&v1beta1.ZoneSpreadSpec{MaxSkew: 3, WhenUnsatisfiable: v1beta1.DoNotSchedule},
			[]string{"x", "y", "x"},
			replicas.Spread{Zones: []string{"x", "y"}, MaxSkew: 3, IsStrict: true},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			of := template{Resource: v1beta1.ResourceSpec{Placement: &v1beta1.PlacementSpec{Zones: test.zones}}}
			got := spreadOf(set(func(s *v1beta1.InferenceSet) { s.Spec.ZoneSpread = test.spec }), of)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("spread (-want +got):\n%s", diff)
			}
		})
	}
}
