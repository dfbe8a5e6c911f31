// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/workload"
)

// apart is a provisioner that keeps the machines of two attempts apart. Their names are those of nodeclaim.
type apart struct{ account }

func (apart) CanSurge(capacity.Owner) bool               { return true }
func (apart) Replaces(capacity.Owner) capacity.Replacing { return capacity.ReplacesLater }

func (apart) ReleaseBut(context.Context, capacity.Owner, []string) ([]string, error) { return nil, nil }

// names of the machines of an attempt of the Workspace of these tests.
func names(t *testing.T, number int32) []string {
	t.Helper()
	out, err := apart{}.Names(ownerOf(workspaceObject()), number, 1)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// surging serves on the machine of attempt 1, and gets that of attempt 2.
func surging(s *scope) {
	s.ws.Status.State = v1beta1.StateReady
	s.revision, s.former = accepted(1), accepted(1)
	s.revision.Name = "chat-9876543210"
	s.former.Inputs, s.revision.Inputs = &render.Inputs{}, &render.Inputs{Config: "other"}
	s.statefulSet, s.pods = readySet(), []corev1.Pod{podReady()}
	s.begin(s.former, 1, []string{"chat-aaaa"}, now.Time)
	s.attempts[0].ReadyTime = &now
	s.surge.Serving = 1
	s.begin(s.revision, 2, []string{"chat-bbbb"}, now.Time)
	launched := machine(launching)
	launched.Name = "chat-bbbb"
	s.machines = []capacity.Machine{machine(), launched}
}

// pinnedSet is a set whose pods select the machines of an attempt.
func pinnedSet(attempt int32) *appsv1.StatefulSet {
	set := readySet()
	set.Annotations = map[string]string{v1beta1.AnnotationRevision: "former"}
	if attempt > 0 {
		workload.PinToAttempt(set, attempt)
	}
	return set
}

// decideSurge observes two attempts at once, and records what has to be before anything else is decided.
func decideSurge(t *testing.T, r *Reconciler, s *scope) error {
	t.Helper()
	found, err := r.observeSurge(t.Context(), s)
	s.surge, s.statefulSet = found.Surge, found.set
	if err == nil && (found.isUnrecorded || found.isNeedless) {
		_, err = r.take(t.Context(), s, acquire.Decide(acquire.State{Unrecorded: found.isUnrecorded, Needless: found.isNeedless}))
	}
	return err
}

// TestHold says which attempt is held, and which is worked for, as it stands in the status.
func TestHold(t *testing.T) {
	const far, near = "Standard_ND96asr_v4", "Standard_NC24ads_A100_v4"
	attempt := func(number int32, instanceType string, isReady bool) v1beta1.Attempt {
		out := v1beta1.Attempt{
			Number: number, InstanceType: instanceType, CapacityType: v1beta1.CapacityOnDemand, NodeClaims: names(t, number),
			Revision: "some", StartTime: now,
		}
		if isReady {
			out.ReadyTime = &now
		}
		return out
	}
	closed := func(a v1beta1.Attempt) v1beta1.Attempt {
		a.Reason = v1beta1.ReasonNoCapacity
		return a
	}
	tests := []struct {
		reason   string
		attempts []v1beta1.Attempt
		pinned   int32
		trouble  nodehealth.Trouble
		// lost says that the first machine is on its way out, gone that it is not there any more, silent that its node is not.
		lost, gone, silent bool
		// held and open are the numbers of the attempts; 0 where there is none.
		held, open int32
	}{
		{reason: "nothing was begun"},
		{reason: "it has what is wanted", attempts: []v1beta1.Attempt{attempt(1, near, true)}, open: 1},
		{reason: "it has what is not wanted any more", attempts: []v1beta1.Attempt{attempt(1, far, true)}, held: 1},
		{reason: "it asks for what is not wanted any more", attempts: []v1beta1.Attempt{attempt(1, far, false)}, open: 1},
		{
			reason:   "what is wanted is asked for beside it",
			attempts: []v1beta1.Attempt{attempt(1, far, true), attempt(2, near, false)}, held: 1, open: 2,
		},
		{
			reason:   "what was asked for beside it was refused",
			attempts: []v1beta1.Attempt{attempt(1, far, true), closed(attempt(2, near, false))}, held: 1,
		},
		{
			reason:   "it has what is wanted again: what was begun beside it ends",
			attempts: []v1beta1.Attempt{attempt(1, near, true), attempt(2, far, false)}, open: 1,
		},
		{
			reason:   "the pods are on their way from it, though it has what is wanted",
			attempts: []v1beta1.Attempt{attempt(1, near, true), attempt(2, far, true)}, pinned: 2, held: 1, open: 2,
		},
		{
			reason: "the cloud is about to reclaim its machine", attempts: []v1beta1.Attempt{attempt(1, near, true)},
			trouble: nodehealth.Trouble{Message: "gone soon"}, held: 1,
		},
		{
			reason: "its machine has trouble that may pass", attempts: []v1beta1.Attempt{attempt(1, near, true)},
			trouble: nodehealth.Trouble{Message: "ill", Since: now.Time, Grace: time.Minute}, open: 1,
		},
		{
			reason:   "the cloud is about to reclaim its machine, and the trouble goes with it: the same was asked for beside it",
			attempts: []v1beta1.Attempt{attempt(1, near, true), attempt(2, near, false)}, lost: true, held: 1, open: 2,
		},
		{
			reason:   "its machine is gone: the same was asked for beside it",
			attempts: []v1beta1.Attempt{attempt(1, near, true), attempt(2, near, true)}, gone: true, held: 1, open: 2,
		},
		{
			reason:   "its node is gone, and the cache is yet to show that of the machine: the same was asked for beside it",
			attempts: []v1beta1.Attempt{attempt(1, near, true), attempt(2, near, false)}, silent: true, held: 1, open: 2,
		},
		{reason: "its machine is gone, and nothing is beside it", attempts: []v1beta1.Attempt{attempt(1, near, true)}, gone: true, open: 1},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			r := New(Config{Provisioner: apart{}, Live: fake.NewClientBuilder().Build(), Clock: testclock.NewFakePassiveClock(now.Time)})
			s := newScope(workspaceObject())
			s.revision, s.statefulSet, s.attempts = accepted(1), pinnedSet(test.pinned), test.attempts
			for i := range test.attempts {
				held := machine()
				held.Name, held.InstanceType = test.attempts[i].NodeClaims[0], test.attempts[i].InstanceType
				held.Trouble, held.Deleting, held.NodeReady = test.trouble, test.lost && i == 0, !test.silent || i > 0
				if !test.gone || i > 0 {
					s.machines = append(s.machines, held)
				}
			}
			if err := decideSurge(t, r, s); err != nil {
				t.Fatal(err)
			}
			open := int32(0)
			if found := s.openAttempt(); found != nil {
				open = found.Number
			}
			if s.surge.Serving != test.held || open != test.open {
				t.Errorf("held %d, open %d; want %d, %d", s.surge.Serving, open, test.held, test.open)
			}
		})
	}
}

// TestTroubleOfAGroup says when a broken machine is trouble of the whole attempt, for which others are got in its place.
func TestTroubleOfAGroup(t *testing.T) {
	broken := nodehealth.Trouble{Message: "GPU has fallen off the bus", Since: now.Add(-time.Hour)}
	tests := []struct {
		reason  string
		isAlone bool
		want    string
	}{
		{"it is replaced by itself", true, ""},
		{"another attempt has begun in its place, and stays", false, broken.Message},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			s := newScope(workspaceObject())
			s.revision, s.surge.Replaces = accepted(1), capacity.ReplacesLater
			s.begin(s.revision, 1, []string{"chat-aaaa", "chat-bbbb"}, now.Time)
			s.attempts[0].ReadyTime = &now
			for _, name := range s.attempts[0].NodeClaims {
				s.machines = append(s.machines, machine(func(m *capacity.Machine) { m.Name = name }))
			}
			s.machines[1].Trouble = broken
			if got := s.troubleOf(&s.surge, &s.attempts[0], test.isAlone, now.Time); got != test.want {
				t.Errorf("trouble %q, want %q", got, test.want)
			}
		})
	}
}

// Pods that have just been told to move may not show in the cache: the machines that they move to would be
// taken for ones that an edit made needless.
func TestHoldAsksWhereThePodsRun(t *testing.T) {
	newest := pinnedSet(2)
	newest.Namespace, newest.Name, newest.UID = "team-a", "chat", "set-1"
	r := New(Config{
		Provisioner: apart{}, Live: fake.NewClientBuilder().WithObjects(newest).Build(), Clock: testclock.NewFakePassiveClock(now.Time),
	})
	s := newScope(workspaceObject())
	s.revision, s.statefulSet = accepted(1), pinnedSet(0)
	s.statefulSet.Namespace, s.statefulSet.Name, s.statefulSet.UID = "team-a", "chat", "set-1"
	for number, instanceType := range []string{"first", "second"} {
		s.begin(s.revision, int32(number+1), names(t, int32(number+1)), now.Time)
		s.attempts[number].InstanceType, s.attempts[number].ReadyTime = instanceType, &now
		held := machine()
		held.Name, held.InstanceType = s.attempts[number].NodeClaims[0], instanceType
		s.machines = append(s.machines, held)
	}
	if err := decideSurge(t, r, s); err != nil {
		t.Fatal(err)
	}
	if s.surge.Serving != 1 || !s.isMoved() || s.openAttempt().Number != 2 {
		t.Errorf("held %d, moved %v, open %+v; want the first held, and the pods on the second", s.surge.Serving, s.isMoved(), s.openAttempt())
	}
}

// A back end that cannot tell two attempts' machines apart never holds both.
func TestHoldNeedsASurger(t *testing.T) {
	r := New(Config{Provisioner: account{}, Clock: testclock.NewFakePassiveClock(now.Time)})
	s := newScope(workspaceObject())
	s.revision, s.statefulSet = accepted(1), pinnedSet(0)
	s.begin(s.revision, 1, names(t, 1), now.Time)
	s.attempts[0].ReadyTime, s.attempts[0].InstanceType = &now, "another"
	if err := decideSurge(t, r, s); err != nil || s.surge.Serving != 0 {
		t.Errorf("held %d, %v; want none", s.surge.Serving, err)
	}
}

// TestMove says what the pods run, and which machines they select, at each moment of a move.
func TestMove(t *testing.T) {
	ready := func(s *scope) {
		s.machines[1] = machine()
		s.machines[1].Name = "chat-bbbb"
		s.attempts[1].ReadyTime = &now
	}
	tests := []struct {
		reason string
		pinned int32
		change func(*scope)
		former string
		runsOn int32
	}{
		{"the new machine is on its way: pods that never moved select none", 0, nil, "former", 0},
		{"the new machine is on its way: pods that moved before stay", 1, nil, "former", 1},
		{"the new machine was refused", 1, func(s *scope) { s.end(refused("NoCapacity"), now.Time) }, "former", 1},
		{"the new machine is usable", 0, ready, "", 2},
		{"they are told to move", 2, ready, "", 2},
		{"they have moved, and the new machine is not Ready for a moment", 2, func(s *scope) {
			ready(s)
			s.surge.Serving, s.machines[1].NodeReady, s.pods = 0, false, nil
		}, "", 2},
		{"they have moved, and the machine is another one's by now", 2, func(s *scope) {
			s.surge.Serving = 0
			s.letAllGo("x", now.Time)
			s.begin(s.revision, 3, []string{"chat-cccc"}, now.Time)
		}, "", 3},
		{"they never moved, and the machine is another one's by now", 0, func(s *scope) {
			s.surge.Serving = 0
			s.letAllGo("x", now.Time)
			s.begin(s.revision, 3, []string{"chat-cccc"}, now.Time)
		}, "", 0},
		{"one machine more is on its way beside the one that serves", 0, func(s *scope) {
			s.surge.Serving = 0
			s.attempts = s.attempts[:1]
			s.machines = s.machines[:1]
			s.revision.Plan.Nodes = 2
		}, "former", 0},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			s := newScope(workspaceObject())
			surging(s)
			s.former, s.surge.IsPossible = nil, true
			s.statefulSet = pinnedSet(test.pinned)
			s.pods[0].Status.PodIP = "10.0.0.1"
			s.revisions.Objects = []appsv1.ControllerRevision{{
				ObjectMeta: metav1.ObjectMeta{Name: "former"}, Data: runtime.RawExtension{Raw: []byte("{}")},
			}}
			if test.change != nil {
				test.change(s)
			}
			s.move()
			former := ""
			if s.former != nil {
				former = s.former.Name
			}
			if former != test.former || s.runsOn != test.runsOn {
				t.Errorf("they run %q on %d, want %q on %d", former, s.runsOn, test.former, test.runsOn)
			}
		})
	}
}

// TestVacated says when the former machines are not needed any more.
func TestVacated(t *testing.T) {
	onNode := func(name string) func(*scope) { return func(s *scope) { s.pods[0].Spec.NodeName = name } }
	tests := []struct {
		reason string
		pinned int32
		change func(*scope)
		want   bool
	}{
		{"they are not told to move", 0, onNode("node-2"), false},
		{"a pod is left, on its way out", 2, onNode("node-1"), false},
		{"all are elsewhere", 2, onNode("node-2"), true},
		{"none is anywhere yet", 2, onNode(""), true},
		{"a former pod that the cache may not show all of is left", 2, func(s *scope) {
			s.statefulSet.Generation = 2
		}, false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			s := newScope(workspaceObject())
			surging(s)
			s.statefulSet = pinnedSet(test.pinned)
			test.change(s)
			if got := s.isVacated(); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// TestBeside says what is let go first instead of being held together with what is got.
func TestBeside(t *testing.T) {
	priced := func(usd float64) func(*scope) { return func(s *scope) { s.machines[0].HourlyPrice = usd } }
	limited := func(limit string) func(*scope) {
		return func(s *scope) {
			priced(3)(s)
			s.ws.Resource.Placement = &v1beta1.PlacementSpec{MaxHourlyPrice: limit}
		}
	}
	tests := []struct {
		reason string
		change func(*scope)
		limits purchase.Limits
		want   string
	}{
		{"there is no limit", priced(3), purchase.Limits{}, ""},
		{"both fit", limited("7"), purchase.Limits{}, ""},
		{"both fit exactly", limited("6.673"), purchase.Limits{}, ""},
		{
			"both are too dear together", limited("6"), purchase.Limits{}, "the serving machines are released first: resource.placement.maxHourlyPrice " +
				"of $6.00/h leaves no room for Standard_NC24ads_A100_v4 ($3.67/h) beside Standard_NC24ads_A100_v4 ($3.00/h)",
		},
		{"the Workspace's own limit counts", limited("7"), purchase.Limits{MaxHourlyPrice: 6}, ""},
		{
			"else the installation's", priced(3), purchase.Limits{MaxHourlyPrice: 6}, "the serving machines are released first: this installation's " +
				"default limit of $6.00/h leaves no room for Standard_NC24ads_A100_v4 ($3.67/h) beside Standard_NC24ads_A100_v4 ($3.00/h)",
		},
		{
			"a price is not known", priced(-1), purchase.Limits{MaxHourlyPrice: 6}, "the serving machines are released first: this installation's " +
				"default limit of $6.00/h leaves no room for Standard_NC24ads_A100_v4 beside Standard_NC24ads_A100_v4, as not both prices are known",
		},
		{"a price is not known, and nobody asks", priced(-1), purchase.Limits{}, ""},
		{"nothing is held", func(s *scope) { limited("1")(s); s.surge.Serving = 0 }, purchase.Limits{}, ""},
		{"the pod does not answer for a moment", unready(time.Minute), purchase.Limits{}, ""},
		{
			"the pod does not answer", unready(time.Hour),
			purchase.Limits{},
			"the serving machines are released first: the model on them does not answer",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			r := New(Config{Limits: test.limits, Clock: testclock.NewFakePassiveClock(now.Time)})
			s := newScope(workspaceObject())
			surging(s)
			test.change(s)
			got := ""
			if err := r.choice(s).CheckBeside(s.revision); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A limit that is lowered before the machines of an attempt are all asked for counts, too.
func TestLimitLoweredMeanwhile(t *testing.T) {
	r := New(Config{Planner: thrifty{}, Clock: testclock.NewFakePassiveClock(now.Time)})
	s := newScope(workspaceObject())
	surging(s)
	for i := range s.machines {
		s.machines[i].HourlyPrice = 3
	}
	s.ws.Resource.Placement = &v1beta1.PlacementSpec{MaxHourlyPrice: "6"}
	s.begin(s.revision, 7, []string{"chat-cccc"}, now.Time)
	err := r.reserveAgain(t.Context(), s)
	if waiting, isWaiting := errors.AsType[*progress.WaitingError](err); !isWaiting || waiting.Reason != v1beta1.ReasonSpendingCeiling {
		t.Errorf("error %v, want one that tells of the limit", err)
	}
	last := s.attempts.Last()
	want := "the machines were released: the serving machines are released first: resource.placement.maxHourlyPrice of $6.00/h " +
		"leaves no room for Standard_NC24ads_A100_v4 ($3.67/h) beside Standard_NC24ads_A100_v4 ($3.00/h)"
	if last.Reason != v1beta1.ReasonReleased || last.Message != want {
		t.Errorf("attempt %d ended with %q %q, want %q", last.Number, last.Reason, last.Message, want)
	}
	if held := s.heldAttempt(); held == nil || held.Reason != "" {
		t.Errorf("what serves was let go: %+v", held)
	}
}

// unready has the pod not answer for a while.
func unready(since time.Duration) func(*scope) {
	return func(s *scope) {
		s.pods[0].Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-since)),
		}}
	}
}
