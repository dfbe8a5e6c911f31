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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/workload"
)

// apart is a provisioner that separates the machines of two attempts. It names machines as nodeclaim does.
type apart struct{ account }

func (apart) CanSurge(capacity.Owner) bool               { return true }
func (apart) Replaces(capacity.Owner) capacity.Replacing { return capacity.ReplacesLater }

func (apart) ReleaseBut(context.Context, capacity.Owner, []string) ([]string, error) { return nil, nil }

// names returns the names of an attempt's machines for the Workspace of these tests.
func names(t *testing.T, number int32) []string {
	t.Helper()
	out, err := apart{}.Names(scope.New(workspaceObject()).Owner, number, 1)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// surging changes a pass so that attempt 1 serves on its machine, and attempt 2 acquires another machine.
func surging(s *scope.Scope) {
	s.Workspace.Status.State = v1beta1.StateReady
	s.Revision, s.Previous = accepted(1), accepted(1)
	s.Revision.Name = "chat-9876543210"
	s.Previous.Inputs, s.Revision.Inputs = &render.Inputs{}, &render.Inputs{Config: "other"}
	s.StatefulSet, s.Pods = readySet(), []corev1.Pod{podReady()}
	begin(s, s.Previous, 1, []string{"chat-aaaa"}, now.Time)
	s.Attempts[0].ReadyTime = &now
	s.Surge.Serving, s.Surge.IsPossible = 1, true
	begin(s, s.Revision, 2, []string{"chat-bbbb"}, now.Time)
	launched := machine(launching)
	launched.Name = "chat-bbbb"
	s.Machines = []capacity.Machine{machine(), launched}
}

// pinnedSet returns a StatefulSet whose pods select the machines of an attempt.
func pinnedSet(attempt int32) *appsv1.StatefulSet {
	set := readySet()
	set.Annotations = map[string]string{v1beta1.AnnotationRevision: "former"}
	if attempt > 0 {
		workload.PinToAttempt(set, attempt)
	}
	return set
}

// TestHoldAsksWhereThePodsRun covers a cache that lacks the latest move of the pods: after an edit, their new machines
// would seem unused.
func TestHoldAsksWhereThePodsRun(t *testing.T) {
	newest := pinnedSet(2)
	newest.Namespace, newest.Name, newest.UID = "team-a", "chat", "set-1"
	r := New(Config{
		Provisioner: apart{}, Live: fake.NewClientBuilder().WithObjects(newest).Build(), Clock: testclock.NewFakePassiveClock(now.Time),
	})
	s := scope.New(workspaceObject())
	s.Revision, s.StatefulSet = accepted(1), pinnedSet(0)
	s.StatefulSet.Namespace, s.StatefulSet.Name, s.StatefulSet.UID = "team-a", "chat", "set-1"
	for number, instanceType := range []string{"first", "second"} {
		begin(s, s.Revision, int32(number+1), names(t, int32(number+1)), now.Time)
		s.Attempts[number].InstanceType, s.Attempts[number].ReadyTime = instanceType, &now
		held := machine()
		held.Name, held.InstanceType = s.Attempts[number].NodeClaims[0], instanceType
		s.Machines = append(s.Machines, held)
	}
	if err := r.executor.Read(t.Context(), s, acquire.Read{Needs: acquire.NeedsPods, Attempt: 1}); !apierrors.IsConflict(err) {
		t.Errorf("error %v, want a conflict: the pods are on the second attempt", err)
	}
}

// TestMove checks which revision and which machines the pods use at each stage of a move.
func TestMove(t *testing.T) {
	ready := func(s *scope.Scope) {
		s.Machines[1] = machine()
		s.Machines[1].Name = "chat-bbbb"
		s.Attempts[1].ReadyTime = &now
	}
	tests := []struct {
		reason string
		pinned int32
		change func(*scope.Scope)
		former string
		runsOn int32
	}{
		{"the new machine is on its way: pods that never moved select none", 0, nil, "former", 0},
		{"the new machine is on its way: pods that moved before stay", 1, nil, "former", 1},
		{"the new machine was refused", 1, func(s *scope.Scope) { s.EndAttempt(refused("NoCapacity"), now.Time) }, "former", 1},
		{"the new machine is usable", 0, ready, "", 2},
		{"they are told to move", 2, ready, "", 2},
		{"they have moved, and the new machine is not Ready for a moment", 2, func(s *scope.Scope) {
			ready(s)
			s.Surge.Serving, s.Machines[1].NodeReady, s.Pods = 0, false, nil
		}, "", 2},
		{"they have moved, and the machine is another one's by now", 2, func(s *scope.Scope) {
			s.Surge.Serving = 0
			letAllGo(s, "x", now.Time)
			begin(s, s.Revision, 3, []string{"chat-cccc"}, now.Time)
		}, "", 3},
		{"they never moved, and the machine is another one's by now", 0, func(s *scope.Scope) {
			s.Surge.Serving = 0
			letAllGo(s, "x", now.Time)
			begin(s, s.Revision, 3, []string{"chat-cccc"}, now.Time)
		}, "", 0},
		{"one machine more is on its way beside the one that serves", 0, func(s *scope.Scope) {
			s.Surge.Serving = 0
			s.Attempts = s.Attempts[:1]
			s.Machines = s.Machines[:1]
			s.Revision.Plan.Nodes = 2
		}, "former", 0},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			s := scope.New(workspaceObject())
			surging(s)
			s.Previous, s.Surge.IsPossible = nil, true
			s.StatefulSet = pinnedSet(test.pinned)
			s.Pods[0].Status.PodIP = "10.0.0.1"
			s.Revisions.Objects = []appsv1.ControllerRevision{{
				ObjectMeta: metav1.ObjectMeta{Name: "former"}, Data: runtime.RawExtension{Raw: []byte("{}")},
			}}
			if test.change != nil {
				test.change(s)
			}
			r := New(Config{Clock: testclock.NewFakePassiveClock(now.Time)})
			r.executor.DecidePods(s)
			former := ""
			if s.Previous != nil {
				former = s.Previous.Name
			}
			if former != test.former || s.PinnedTo != test.runsOn {
				t.Errorf("they run %q on %d, want %q on %d", former, s.PinnedTo, test.former, test.runsOn)
			}
		})
	}
}

// TestBeside checks when the serving machines are released before a purchase, instead of after a switchover.
func TestBeside(t *testing.T) {
	priced := func(usd float64) func(*scope.Scope) { return func(s *scope.Scope) { s.Machines[0].HourlyPrice = usd } }
	limited := func(limit string) func(*scope.Scope) {
		return func(s *scope.Scope) {
			priced(3)(s)
			s.Workspace.Resource.Placement = &v1beta1.PlacementSpec{MaxHourlyPrice: limit}
		}
	}
	tests := []struct {
		reason string
		change func(*scope.Scope)
		limits purchase.Limits
		want   string
	}{
		{"there is no limit", priced(3), purchase.Limits{}, ""},
		{"both fit", limited("7"), purchase.Limits{}, ""},
		{"both fit exactly", limited("6.673"), purchase.Limits{}, ""},
		{
			"both are too dear together", limited("6"), purchase.Limits{}, "the serving machines are released before others are bought: resource.placement.maxHourlyPrice " +
				"of $6.00/h has no room for Standard_NC24ads_A100_v4 ($3.67/h) in addition to Standard_NC24ads_A100_v4 ($3.00/h)",
		},
		{"the Workspace's own limit counts", limited("7"), purchase.Limits{MaxHourlyPrice: 6}, ""},
		{
			"else the installation's", priced(3), purchase.Limits{MaxHourlyPrice: 6}, "the serving machines are released before others are bought: this installation's " +
				"default limit of $6.00/h has no room for Standard_NC24ads_A100_v4 ($3.67/h) in addition to Standard_NC24ads_A100_v4 ($3.00/h)",
		},
		{
			"a price is not known", priced(-1), purchase.Limits{MaxHourlyPrice: 6}, "the serving machines are released before others are bought: this installation's " +
				"default limit of $6.00/h may have no room for Standard_NC24ads_A100_v4 in addition to Standard_NC24ads_A100_v4, because one of the two prices is unknown",
		},
		{
			"the back end has no room for both", func(s *scope.Scope) { priced(3)(s); s.Surge.IsPossible = false },
			purchase.Limits{},
			"the serving machines are released before others are bought: the capacity back end cannot hold the machines of two plans",
		},
		{"a price is not known, and nobody asks", priced(-1), purchase.Limits{}, ""},
		{"nothing is held", func(s *scope.Scope) { limited("1")(s); s.Surge.Serving = 0 }, purchase.Limits{}, ""},
		{"the pod does not answer for a moment", unready(time.Minute), purchase.Limits{}, ""},
		{
			"the pod does not answer", unready(time.Hour),
			purchase.Limits{},
			"the serving machines are released before others are bought: the model on them is not answering",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			r := New(Config{Limits: test.limits.Always, Clock: testclock.NewFakePassiveClock(now.Time)})
			s := scope.New(workspaceObject())
			surging(s)
			test.change(s)
			got := ""
			if err := r.executor.Choice(s).CheckBeside(s.Revision); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestLimitLoweredMeanwhile: a limit applies even if it is lowered before an attempt has requested all machines.
func TestLimitLoweredMeanwhile(t *testing.T) {
	r := New(Config{Planner: thrifty{}, Clock: testclock.NewFakePassiveClock(now.Time)})
	s := scope.New(workspaceObject())
	surging(s)
	for i := range s.Machines {
		s.Machines[i].HourlyPrice = 3
	}
	s.Workspace.Resource.Placement = &v1beta1.PlacementSpec{MaxHourlyPrice: "6"}
	begin(s, s.Revision, 7, []string{"chat-cccc"}, now.Time)
	err := r.executor.Reserve(t.Context(), s)
	if waiting, isWaiting := errors.AsType[*progress.WaitingError](err); !isWaiting || waiting.Reason != v1beta1.ReasonSpendingCeiling {
		t.Errorf("error %v, want one that tells of the limit", err)
	}
	last := s.Attempts.Last()
	want := "the machines were released: resource.placement.maxHourlyPrice of $6.00/h " +
		"has no room for Standard_NC24ads_A100_v4 ($3.67/h) in addition to Standard_NC24ads_A100_v4 ($3.00/h)"
	if last.Reason != v1beta1.ReasonReleased || last.Message != want {
		t.Errorf("attempt %d ended with %q %q, want %q", last.Number, last.Reason, last.Message, want)
	}
	if held := s.ServingAttempt(); held == nil || held.Reason != "" {
		t.Errorf("what serves was let go: %+v", held)
	}
}

// unready makes the pod not ready for a while.
func unready(since time.Duration) func(*scope.Scope) {
	return func(s *scope.Scope) {
		s.Pods[0].Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-since)),
		}}
	}
}
