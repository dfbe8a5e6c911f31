// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
)

var noon = metav1.NewTime(time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC))

// budgeted is the name of a plan in a namespace with a monthly budget.
const budgeted = "budgeted"

// known is a Lookup with plans by name.
type known map[string]*Plan

func (k known) Plan(name string) *Plan { return k[name] }

func (known) Names(attempt int32, count int) ([]string, error) {
	var out []string
	for ordinal := range count {
		out = append(out, nameOf(attempt, ordinal))
	}
	return out, nil
}

func (known) Offering(a *v1beta1.Attempt) refusal.Offering {
	return refusal.Offering{InstanceType: a.InstanceType, CapacityType: a.CapacityType}
}
func (known) Class(*Plan) string                         { return "" }
func (known) Zones(time.Time, refusal.Offering) []string { return nil }
func (known) Forbidden() string                          { return "" }
func (k known) HasBudget() bool                          { return k[budgeted] != nil }
func (known) Failing(*v1beta1.Attempt) (string, bool)    { return "", false }
func (known) Fault() string                              { return "pod chat-0 waits for the scheduler" }

func nameOf(attempt int32, ordinal int) string            { return fmt.Sprintf("chat-%d-%d", attempt, ordinal) }
func wanted(nodes int) *Plan                              { return plan("accepted", "A", nodes) }
func attemptOf(number int32, kind string) v1beta1.Attempt { return attemptFor(number, kind, 1) }
func readyOf(number int32, instanceType string) v1beta1.Attempt {
	out := attemptOf(number, instanceType)
	out.ReadyTime = &noon
	return out
}

func plan(name, instanceType string, nodes int) *Plan {
	return &Plan{Name: name, Revision: &render.Revision{Plan: planner.Plan{
		InstanceType: instanceType, CapacityType: v1beta1.CapacityOnDemand, Nodes: nodes, MachineGPUs: 1, GPUsPerNode: 1,
	}}}
}

func attemptFor(number int32, instanceType string, count int) v1beta1.Attempt {
	names, _ := known{}.Names(number, count)
	return v1beta1.Attempt{
		Number: number, InstanceType: instanceType, CapacityType: v1beta1.CapacityOnDemand, NodeClaims: names, Revision: "accepted",
		StartTime: noon,
	}
}

// machineOf returns a usable machine of an attempt.
func machineOf(attempt int32, ordinal int, instanceType string, change ...func(*capacity.Machine)) capacity.Machine {
	out := capacity.Machine{
		Name: nameOf(attempt, ordinal), InstanceType: instanceType, CapacityType: v1beta1.CapacityOnDemand,
		Launched: true, Registered: true, Initialized: true, NodeName: fmt.Sprintf("node-%d-%d", attempt, ordinal), NodeReady: true, GPUs: 1,
	}
	for _, c := range change {
		c(&out)
	}
	return out
}

// begun returns a pass with these attempts.
func begun(attempts ...v1beta1.Attempt) *pass {
	return &pass{Snapshot: Snapshot{
		Workspace: &v1beta1.Workspace{}, Accepted: wanted(1), Attempts: attempts, Judge: Judge{Now: noon.Time}, Lookup: known{},
		Surge: Surge{IsPossible: true, Replaces: capacity.ReplacesLater}, Pods: Pods{HasSet: true, IsRolledOut: true},
	}}
}

// TestObserveSurge covers the choice of the serving attempt.
func TestObserveSurge(t *testing.T) {
	closed := func(a v1beta1.Attempt) v1beta1.Attempt {
		a.Reason = v1beta1.ReasonNoCapacity
		return a
	}
	tests := []struct {
		reason   string
		attempts []v1beta1.Attempt
		pinned   int32
		fault    nodehealth.Fault
		// The first machine is being deleted, is gone, or its node is not Ready.
		leaves, gone, silent bool
		serving              int32
		needless             bool
	}{
		{reason: "nothing was begun"},
		{reason: "its machines are wanted", attempts: []v1beta1.Attempt{readyOf(1, "A")}},
		{reason: "another plan is wanted", attempts: []v1beta1.Attempt{readyOf(1, "B")}, serving: 1},
		{reason: "another plan is wanted, and it never got its machines", attempts: []v1beta1.Attempt{attemptOf(1, "B")}},
		{reason: "another attempt is beside it", attempts: []v1beta1.Attempt{readyOf(1, "B"), attemptOf(2, "A")}, serving: 1},
		{reason: "the other attempt was refused", attempts: []v1beta1.Attempt{readyOf(1, "B"), closed(attemptOf(2, "A"))}, serving: 1},
		{
			reason:   "its machines are wanted again",
			attempts: []v1beta1.Attempt{readyOf(1, "A"), attemptOf(2, "B")}, needless: true,
		},
		{
			reason:   "the pods are leaving it, though its machines are wanted again",
			attempts: []v1beta1.Attempt{readyOf(1, "A"), readyOf(2, "B")}, pinned: 2, serving: 1,
		},
		{
			reason: "the cloud is about to reclaim the node's machine", attempts: []v1beta1.Attempt{readyOf(1, "A")},
			fault: nodehealth.Fault{Message: "gone soon"}, serving: 1,
		},
		{
			reason: "its machine has fault that may pass", attempts: []v1beta1.Attempt{readyOf(1, "A")},
			fault: nodehealth.Fault{Message: "ill", Since: noon.Time, Grace: time.Minute},
		},
		{
			reason:   "its machine leaves, and takes its fault along",
			attempts: []v1beta1.Attempt{readyOf(1, "A"), attemptOf(2, "A")}, leaves: true, serving: 1,
		},
		{
			reason:   "its machine is gone, and the same was acquired beside it",
			attempts: []v1beta1.Attempt{readyOf(1, "A"), readyOf(2, "A")}, gone: true, serving: 1,
		},
		{
			reason:   "its node is gone, and the cache has yet to show that of the machine",
			attempts: []v1beta1.Attempt{readyOf(1, "A"), attemptOf(2, "A")}, silent: true, serving: 1,
		},
		{reason: "its machine is gone, and nothing is beside it", attempts: []v1beta1.Attempt{readyOf(1, "A")}, gone: true},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			p := begun(test.attempts...)
			p.Pods.Pinned, p.Live = test.pinned, Live{ArePodsConfirmed: true}
			for i := range test.attempts {
				if test.gone && i == 0 {
					continue
				}
				p.Machines = append(p.Machines, machineOf(int32(i+1), 0, test.attempts[i].InstanceType, func(m *capacity.Machine) {
					m.Fault, m.Deleting, m.NodeReady = test.fault, test.leaves && i == 0, !test.silent || i > 0
				}))
			}
			_, isNeedless, err := p.observeSurge()
			if err != nil || p.Surge.Serving != test.serving || isNeedless != test.needless {
				t.Errorf("serving %d, needless %v, error %v; want %d, %v", p.Surge.Serving, isNeedless, err, test.serving, test.needless)
			}
		})
	}
}

// TestSurgeNeedsTheBackEnd has a back end that cannot distinguish the machines of two attempts. Before it releases the
// serving ones, a monthly budget must pay for others.
func TestSurgeNeedsTheBackEnd(t *testing.T) {
	for _, test := range []struct {
		reason  string
		attempt v1beta1.Attempt
		change  func(*pass)
		step    Do
		stays   bool
	}{
		{"another plan is wanted, without a budget", readyOf(1, "B"), func(p *pass) { p.Lookup = known{} }, End, false},
		{"another plan is wanted", readyOf(1, "B"), func(*pass) {}, Next, true},
		{"its machines are wanted", readyOf(1, "A"), func(*pass) {}, Keep, false},
		{"it does not answer", readyOf(1, "B"), func(p *pass) { p.Pods.IsAnswering = false }, End, false},
		{"it never got its machines", attemptOf(1, "B"), func(*pass) {}, End, false},
		{"the budget pays for others", readyOf(1, "B"), func(p *pass) { p.Recreates = "they are released first" }, End, false},
	} {
		t.Run(test.reason, func(t *testing.T) {
			p := begun(test.attempt)
			p.Machines, p.Surge.IsPossible, p.Pods.IsAnswering = Machines{machineOf(1, 0, test.attempt.InstanceType)}, false, true
			p.Workspace.Status.Attempts = p.Attempts.Clone()
			p.Lookup = known{budgeted: wanted(1)}
			test.change(p)
			state, err := p.state()
			if err != nil {
				t.Fatal(err)
			}
			if step := state.Next(); step.Do != test.step {
				t.Errorf("the next step is %s, want %s", step.Do, test.step)
			}
			if pods := p.Switchover(true); pods.Stays != test.stays {
				t.Errorf("the pods stay: %v, want %v", pods.Stays, test.stays)
			}
		})
	}
}

// TestReadsBeforeACancel: machines count as needless only after a confirmation, because the caches may lag.
func TestReadsBeforeACancel(t *testing.T) {
	tests := []struct {
		reason   string
		attempts []v1beta1.Attempt
		want     Read
	}{
		{
			"the fault of the nodes may not show yet",
			[]v1beta1.Attempt{readyOf(1, "A"), attemptOf(2, "B")},
			Read{Needs: NeedsPods, Attempt: 1},
		},
		{"the pods may have moved already", []v1beta1.Attempt{readyOf(1, "C"), readyOf(2, "B")}, Read{Needs: NeedsPods, Attempt: 1}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			p := begun(test.attempts...)
			for i, a := range test.attempts {
				p.Machines = append(p.Machines, machineOf(int32(i+1), 0, a.InstanceType))
			}
			got, err := Decide(p.Snapshot)
			if diff := cmp.Diff(test.want, got.Read); diff != "" || err != nil {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestPinned has a StatefulSet that names an attempt. The status may have lost that attempt.
func TestPinned(t *testing.T) {
	tests := []struct {
		reason   string
		pinned   int32
		attempts []v1beta1.Attempt
		serving  int32
	}{
		{"the pods move to the second", 2, []v1beta1.Attempt{readyOf(1, "A"), attemptOf(2, "A")}, 1},
		{"the pods move to one that only a machine shows", 2, []v1beta1.Attempt{readyOf(1, "A")}, 1},
		{"the set is from before the status was lost", 5, []v1beta1.Attempt{readyOf(1, "A")}, 0},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			p := begun(test.attempts...)
			p.Pods.Pinned = test.pinned
			for number := int32(1); number <= 2; number++ {
				p.Machines = append(p.Machines, machineOf(number, 0, "A", func(m *capacity.Machine) { m.Attempt = number }))
			}
			if _, _, err := p.observeSurge(); err != nil {
				t.Fatal(err)
			}
			if p.Surge.Serving != test.serving || p.IsMoved() != (test.serving > 0) {
				t.Errorf("serving %d, moved %v; want %d", p.Surge.Serving, p.IsMoved(), test.serving)
			}
		})
	}
}

// TestTroubleOfAGroup has a broken machine in an attempt that can replace it without the others.
func TestTroubleOfAGroup(t *testing.T) {
	broken := nodehealth.Fault{Message: "GPU has fallen off the bus", Since: noon.Add(-time.Hour)}
	for _, test := range []struct {
		reason  string
		isAlone bool
		want    string
	}{
		{"it is replaced by itself", true, ""},
		{"another attempt has begun in its place, and stays", false, broken.Message},
	} {
		t.Run(test.reason, func(t *testing.T) {
			attempt := attemptFor(1, "A", 2)
			attempt.ReadyTime = &noon
			p := begun(attempt)
			p.Machines = Machines{machineOf(1, 0, "A"), machineOf(1, 1, "A", func(m *capacity.Machine) { m.Fault = broken })}
			if got := p.fault(&p.Attempts[0], test.isAlone); got != test.want {
				t.Errorf("fault %q, want %q", got, test.want)
			}
		})
	}
}

// TestAdoptConfirms: the status was lost. Only the machines show the earlier request, and a lagging cache shows other
// machines.
func TestAdoptConfirms(t *testing.T) {
	first, second := nameOf(1, 0), nameOf(2, 0)
	tests := []struct {
		reason      string
		shown, held []string
		leaving     string
		want        string
	}{
		{"one is there", []string{first}, []string{first}, "", first},
		{"two are there", []string{first, second}, []string{first, second}, "", first},
		{"one of two is on its way out", []string{first, second}, []string{second}, first, second},
		{"one of two is gone, which does not show yet", []string{first, second}, []string{second}, "", ""},
		{"another one has come, which does not show yet", []string{first}, []string{first, second}, "", ""},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			p := begun()
			named := func(name string) capacity.Machine {
				return machineOf(0, 0, "A", func(m *capacity.Machine) { m.Name, m.Deleting = name, name == test.leaving })
			}
			for _, name := range test.shown {
				p.Machines = append(p.Machines, named(name))
			}
			var held Machines
			for _, name := range test.held {
				held = append(held, named(name))
			}
			err := confirmed(t, p, held, p.adopt)
			if waits := test.want == ""; progress.IsWaiting(err) != waits || err != nil != waits {
				t.Fatalf("error %v, want to wait: %v", err, waits)
			}
			got := ""
			if open := p.Open(); open != nil {
				got = open.NodeClaims[0]
			}
			if got != test.want {
				t.Errorf("it adopted %q, want %q", got, test.want)
			}
		})
	}
}

// confirmed takes a step that needs a confirmation of the machines, and repeats it with the confirmation.
func confirmed(t *testing.T, p *pass, held Machines, step func() error) error {
	t.Helper()
	if asked, isMissing := errors.AsType[*missing](step()); !isMissing || asked.Needs != NeedsMachines || p.Open() != nil && p.out.Ended != nil {
		t.Fatalf("it asks %+v, want a confirmation of the machines first", asked)
	}
	if err := AwaitMachines(p.Machines, held); err != nil {
		return err
	}
	p.Live.AreMachinesConfirmed = true
	return step()
}

// TestJudgesMachineOfTheSameName: an earlier leader has requested a machine with the name of a machine that is being
// deleted.
func TestJudgesMachineOfTheSameName(t *testing.T) {
	for _, test := range []struct {
		reason string
		held   Machines
	}{{"it goes", nil}, {"it was requested again", Machines{machineOf(1, 0, "A")}}} {
		t.Run(test.reason, func(t *testing.T) {
			p := begun(attemptOf(1, "A"))
			p.Live.Reasons = map[int32]*Reasons{1: {}}
			p.Machines = Machines{machineOf(1, 0, "A", func(m *capacity.Machine) {
				m.UID, m.Deleting, m.DeletingSince, m.Initialized, m.NodeName = "claim-1", true, noon.Time, false, ""
			})}
			var judged []Machine
			err := confirmed(t, p, test.held, func() (err error) {
				judged, err = p.judge(&p.Attempts[0], p.Attempts[0].NodeClaims)
				return err
			})
			if waits := len(test.held) > 0; progress.IsWaiting(err) != waits || err != nil != waits {
				t.Fatalf("error %v, want to wait: %v", err, waits)
			}
			if err == nil && !judged[0].Verdict.Final {
				t.Errorf("verdict %+v, want a final one", judged[0].Verdict)
			}
		})
	}
}

// TestMachinesAreJudgedByTheirOwnPlan: after an edit, the machines have fewer GPUs than the accepted plan requests.
func TestMachinesAreJudgedByTheirOwnPlan(t *testing.T) {
	former := plan("former", "A", 1)
	p := begun()
	p.Accepted.Plan.MachineGPUs, p.Lookup = 2, known{"former": former}
	for name, want := range map[string]int{"former": 1, "gone": 2} {
		if got := p.caseOf(&v1beta1.Attempt{Revision: name}, nil).GPUs; got != want {
			t.Errorf("machines of plan %s have %d GPUs, want %d", name, got, want)
		}
	}
}

// TestEndConfirms: an attempt is about to end when a machine becomes usable, or when another machine takes its name.
func TestEndConfirms(t *testing.T) {
	lost := refusal.Verdict{Cause: refusal.Lost, Final: true}
	usable := func(isUsable bool) func(*capacity.Machine) {
		return func(m *capacity.Machine) { m.Initialized = isUsable }
	}
	uid := func(uid string) func(*capacity.Machine) {
		return func(m *capacity.Machine) { m.UID = types.UID(uid) }
	}
	tests := []struct {
		reason      string
		step        Step
		shown, held func(*capacity.Machine)
		ends        bool
	}{
		{"no machine is usable", Step{Verdict: lost, Recheck: true}, usable(false), usable(false), true},
		{"a usable machine does not show yet", Step{Verdict: lost, Recheck: true}, usable(false), usable(true), false},
		{"the cache shows what the API server has", Step{Verdict: lost, Recheck: true}, usable(true), usable(true), true},
		{"another plan is wanted, and the cache shows the machine", Step{}, uid("new"), uid("new"), true},
		{"another plan is wanted, and the cache shows one of that name that is gone", Step{}, uid("old"), uid("new"), false},
		{"another plan is wanted, and the back end reports no UID", Step{}, uid("old"), uid(""), true},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			p := begun(attemptOf(1, "A"))
			p.Machines = Machines{machineOf(1, 0, "A", test.shown)}
			err := confirmed(t, p, Machines{machineOf(1, 0, "A", test.held)}, func() error { return p.end(test.step) })
			if progress.IsWaiting(err) == test.ends || (p.Open() == nil) != test.ends {
				t.Errorf("error %v, open %v; want the end: %v", err, p.Open(), test.ends)
			}
		})
	}
}

// TestEndNeedsNoConfirmation ends an attempt that no usable machine would keep open.
func TestEndNeedsNoConfirmation(t *testing.T) {
	p := begun(attemptOf(1, "A"))
	if err := p.end(Step{Verdict: refusal.Verdict{Cause: refusal.Lost, Final: true}}); err != nil || p.Open() != nil {
		t.Errorf("error %v, open %v; want the end", err, p.Open())
	}
}

// TestEndIsAboutTheAcceptedPlan ends an attempt that has outlived an edit. The edited plan gets no attempt of its own.
func TestEndIsAboutTheAcceptedPlan(t *testing.T) {
	attempt := attemptOf(1, "A")
	attempt.Revision = "before"
	p := begun(attempt)
	if err := p.end(Step{Verdict: refusal.Verdict{Cause: refusal.Misconfigured, Final: true}}); err != nil {
		t.Fatal(err)
	}
	if last := p.Attempts.Last(); last.Reason != v1beta1.ReasonMisconfigured || !p.isUnchangedSince(last) {
		t.Errorf("attempt %+v counts as mended", last)
	}
}

// TestReplacedByItsLike releases a machine for another one of its kind. That excludes no offer.
func TestReplacedByItsLike(t *testing.T) {
	for _, asksAgain := range []bool{false, true} {
		p := begun(attemptOf(1, "A"))
		p.AsksAgain, p.Recreates = asksAgain, "no room for both"
		if err := p.end(Step{Verdict: refusal.Verdict{Cause: refusal.Lost, Final: true, Message: "it is gone"}}); err != nil {
			t.Fatal(err)
		}
		ended := p.Attempts.Last()
		if (ended.Reason == v1beta1.ReasonReleased) != asksAgain {
			t.Errorf("asks again %v: ended with %s", asksAgain, ended.Reason)
		}
		if want := "no room for both; it is gone"; asksAgain && ended.Message != want {
			t.Errorf("ended with %q, want %q", ended.Message, want)
		}
	}
}

// TestWaste has two machines at $3.00 per hour for an hour.
func TestWaste(t *testing.T) {
	priced := func(m *capacity.Machine) { m.HourlyPrice, m.CreatedAt = 3, noon.Time }
	tests := []struct {
		reason string
		change func(*pass)
		want   float64
	}{
		{"both were launched", func(*pass) {}, 6},
		{"one was not", func(p *pass) { p.Machines[1].Launched = false }, 3},
		{"the price of one is not known", func(p *pass) { p.Machines[1].HourlyPrice = -1 }, 3},
		{"they were of use", func(p *pass) { p.Attempts[0].ReadyTime = &noon }, 0},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			p := begun(attemptFor(1, "A", 2))
			p.Machines = Machines{machineOf(1, 0, "A", priced), machineOf(1, 1, "A", priced)}
			test.change(p)
			if got := p.waste(noon.Add(time.Hour)); got != test.want {
				t.Errorf("wasted %v, want %v", got, test.want)
			}
		})
	}
}

// TestReadySince: the last pass was an hour ago.
func TestReadySince(t *testing.T) {
	at := func(after time.Duration) func(*capacity.Machine) {
		return func(m *capacity.Machine) {
			m.Words.Initialized = refusal.Condition{Status: refusal.StatusTrue, Since: noon.Add(after)}
		}
	}
	tests := []struct {
		reason   string
		machines Machines
		want     time.Duration
	}{
		{"the last machine counts", Machines{machineOf(1, 0, "A", at(2*time.Minute)), machineOf(1, 1, "A", at(time.Minute))}, 2 * time.Minute},
		{"no condition has a time", Machines{machineOf(1, 0, "A")}, time.Hour},
		{"the clocks differ: before it was requested", Machines{machineOf(1, 0, "A", at(-time.Second))}, 0},
		{"the clocks differ: later than now", Machines{machineOf(1, 0, "A", at(2*time.Hour))}, time.Hour},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			p := begun()
			p.Machines, p.Judge.Now = test.machines, noon.Add(time.Hour)
			if got, want := p.readySince(&v1beta1.Attempt{StartTime: noon}), noon.Add(test.want); !got.Equal(want) {
				t.Errorf("since %s, want %s", got, want)
			}
		})
	}
}

// TestAreUsable changes the only machine of a plan.
func TestAreUsable(t *testing.T) {
	for _, test := range []struct {
		reason string
		change func(*capacity.Machine)
		want   bool
	}{
		{"it is", func(*capacity.Machine) {}, true},
		{"it is not initialised", func(m *capacity.Machine) { m.Initialized = false }, false},
		{"its node is not Ready", func(m *capacity.Machine) { m.NodeReady = false }, false},
		{"its GPUs do not show", func(m *capacity.Machine) { m.GPUs = 0 }, false},
	} {
		if got := (Machines{machineOf(1, 0, "A", test.change)}).AreUsable(&wanted(1).Plan); got != test.want {
			t.Errorf("%s: usable %v, want %v", test.reason, got, test.want)
		}
	}
}

// TestIsVacated: the pods move from the machine of attempt 1 to the machine of attempt 2.
func TestIsVacated(t *testing.T) {
	tests := []struct {
		reason string
		pinned int32
		node   string
		isOld  bool
		want   bool
	}{
		{"they are not pinned to it", 0, "node-2-0", false, false},
		{"a pod is left, on its way out", 2, "node-1-0", false, false},
		{"all are elsewhere", 2, "node-2-0", false, true},
		{"none is anywhere yet", 2, "", false, true},
		{"the cache may lack a former pod", 2, "node-2-0", true, false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			p := begun(readyOf(1, "A"), attemptOf(2, "A"))
			p.Surge.Serving, p.Machines = 1, Machines{machineOf(1, 0, "A"), machineOf(2, 0, "A")}
			p.Pods = Pods{HasSet: true, Pinned: test.pinned, Nodes: []string{test.node}, IsRolledOut: !test.isOld}
			if got := p.IsVacated(); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// TestIsGroup: without a plan there is no group.
func TestIsGroup(t *testing.T) {
	var none *Plan
	group := wanted(2)
	group.Worker = &corev1.PodTemplateSpec{}
	if none.IsGroup() || wanted(2).IsGroup() || !group.IsGroup() {
		t.Errorf("none %v, two alone %v, two together %v", none.IsGroup(), wanted(2).IsGroup(), group.IsGroup())
	}
}

func TestOnlyTheFirstAttemptOfANewWorkspaceIsImplied(t *testing.T) {
	ended := attemptOf(1, "A")
	ended.Reason = string(refusal.Quota)
	for _, tc := range []struct {
		reason   string
		isNew    bool
		stored   []v1beta1.Attempt
		attempts []v1beta1.Attempt
		want     bool
	}{
		{reason: "the pinned revision has its plan", isNew: true, attempts: []v1beta1.Attempt{attemptOf(1, "A")}},
		{reason: "an earlier pass may have requested machines", attempts: []v1beta1.Attempt{attemptOf(1, "A")}, want: true},
		{reason: "it has failed already", isNew: true, attempts: []v1beta1.Attempt{ended}, want: true},
		{reason: "one has failed already", isNew: true, attempts: []v1beta1.Attempt{ended, attemptOf(2, "B")}, want: true},
		{
			reason: "the finalizer was lost", isNew: true,
			stored: []v1beta1.Attempt{ended}, attempts: []v1beta1.Attempt{attemptOf(2, "B")}, want: true,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			p := begun(tc.attempts...)
			p.IsNew, p.Workspace.Status.Attempts = tc.isNew, tc.stored
			state, err := p.state()
			if err != nil {
				t.Fatal(err)
			}
			if state.Unwritten != tc.want {
				t.Errorf("to be written before the purchase: %v, want %v", state.Unwritten, tc.want)
			}
		})
	}
}
