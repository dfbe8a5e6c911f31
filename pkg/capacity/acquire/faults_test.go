// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/render"
)

func TestNoteFaultsOfGPUs(t *testing.T) {
	const lacks = "node n can allocate 3 of its 4 nvidia.com/gpu: the device plugin reports the other GPUs as unhealthy"
	minutes := func(n int) *metav1.Time { return new(metav1.NewTime(noon.Add(time.Duration(n) * time.Minute))) }
	since := func(n int) nodehealth.Fault {
		return nodehealth.Fault{Message: lacks, Since: minutes(n).Time, Grace: 7 * time.Minute}
	}
	reclaimed := nodehealth.Fault{Message: "the cloud is about to reclaim it", Announced: true}
	tests := []struct {
		reason    string
		noted     *metav1.Time
		attempt   func(*v1beta1.Attempt)
		machine   func(*capacity.Machine)
		wantNoted *metav1.Time
		wantFault nodehealth.Fault
	}{
		{reason: "all GPUs are usable", machine: func(m *capacity.Machine) { m.Shortage = "" }},
		{reason: "a shortage counts from the first look", wantNoted: minutes(10), wantFault: since(10)},
		{reason: "later looks keep the beginning, those of another process too", noted: minutes(4), wantNoted: minutes(4), wantFault: since(4)},
		{reason: "a node that recovers is well", noted: minutes(4), machine: func(m *capacity.Machine) { m.Shortage = "" }},
		{
			reason:  "before all machines were usable, the deadlines of the start apply",
			attempt: func(a *v1beta1.Attempt) { a.ReadyTime = nil },
		},
		{reason: "an ended attempt is history", attempt: func(a *v1beta1.Attempt) { a.Reason = "Lost" }},
		{reason: "another machine of that name has its own record", machine: func(m *capacity.Machine) { m.UID = "another" }},
		{reason: "a node that joins is not judged yet", machine: func(m *capacity.Machine) { m.Initialized = false }},
		{reason: "a machine that leaves is not judged", machine: func(m *capacity.Machine) { m.Deleting = true }},
		{
			reason: "a silent node begins nothing", machine: func(m *capacity.Machine) { m.NodeReady = false },
		},
		{
			reason: "a silent node has no such fault: other deadlines apply", noted: minutes(4), wantNoted: minutes(4),
			machine: func(m *capacity.Machine) { m.NodeReady = false },
		},
		{
			reason: "a silent node ends nothing", noted: minutes(4), wantNoted: minutes(4),
			machine: func(m *capacity.Machine) { m.NodeReady, m.Shortage = false, "" },
		},
		{
			reason:  "an announced end comes first",
			machine: func(m *capacity.Machine) { m.Fault = reclaimed }, wantNoted: minutes(10), wantFault: reclaimed,
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			attempt := v1beta1.Attempt{
				Number: 1, NodeClaims: []string{"m"}, ReadyTime: &noon, Claims: []v1beta1.AttemptClaim{{Name: "m", UID: "uid", CreationTime: &noon, GPUsMissingSince: test.noted}},
			}
			if test.attempt != nil {
				test.attempt(&attempt)
			}
			machine := capacity.Machine{Name: "m", UID: "uid", NodeReady: true, Initialized: true, Shortage: lacks}
			if test.machine != nil {
				test.machine(&machine)
			}
			attempts, machines := Attempts{attempt}, Machines{machine}
			for range 2 { // the second look changes nothing
				attempts.NoteFaults(machines, []*render.Revision{plan("plan", "A", 1).Revision}, noon.Add(10*time.Minute+300*time.Millisecond))
			}
			if diff := cmp.Diff(test.wantNoted, attempts[0].Claims[0].GPUsMissingSince); diff != "" {
				t.Errorf("noted (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.wantFault, machines[0].Fault); diff != "" {
				t.Errorf("fault (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNoteFaultsBound has the observations of one machine in order. Each has a fault of the node, or none.
func TestNoteFaultsBound(t *testing.T) {
	const fault, another = "node n reports SysLogsXIDError=True: 13", "node n reports GpuSmWatch=True: 1"
	at := func(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }
	stored := func(uid string, minute int, healthy ...int) v1beta1.AttemptFault {
		out := v1beta1.AttemptFault{UID: uid, Node: "node-" + uid, Time: metav1.NewTime(at(minute)), Message: fault}
		for _, since := range healthy {
			out.HealthySince = new(metav1.NewTime(at(since)))
		}
		return out
	}
	type look struct {
		minute int
		// message of the node's fault, which began 5 minutes before; empty if the node is healthy.
		message string
		machine func(*capacity.Machine)
	}
	never, silent := time.Duration(0), func(m *capacity.Machine) { m.NodeReady = false }
	tests := []struct {
		reason string
		former []v1beta1.AttemptFault // of an attempt that has ended
		looks  []look
		// expected after the last look
		wantFaults   []v1beta1.AttemptFault
		wantFault    string
		wantWithheld string
		wantNext     time.Duration
	}{
		{reason: "a healthy node", looks: []look{{minute: 0}}},
		{
			reason: "a fault that has lasted counts, and is recorded once", looks: []look{{0, fault, nil}, {1, fault, nil}},
			wantFaults: []v1beta1.AttemptFault{stored("a", 0)}, wantFault: fault,
		},
		{
			reason: "one healthy look does not end a fault that counts", looks: []look{{0, fault, nil}, {1, "", nil}, {3, "", nil}},
			wantFaults: []v1beta1.AttemptFault{stored("a", 0, 1)}, wantFault: fault, wantNext: 5 * time.Minute,
		},
		{
			reason: "a condition that comes and goes counts once", looks: []look{{0, fault, nil}, {1, "", nil}, {6, another, nil}, {7, "", nil}},
			wantFaults: []v1beta1.AttemptFault{stored("a", 0, 7)}, wantFault: fault, wantNext: 7 * time.Minute,
		},
		{
			reason: "a silent node is not healthy", looks: []look{{0, fault, nil}, {1, "", nil}, {2, "", silent}, {9, "", nil}},
			wantFaults: []v1beta1.AttemptFault{stored("a", 0, 9)}, wantFault: fault, wantNext: 7 * time.Minute,
		},
		{
			reason: "after seven minutes of health the fault is gone, and counts no more because nothing was bought",
			looks:  []look{{0, fault, nil}, {1, "", nil}, {8, "", nil}}, wantFaults: []v1beta1.AttemptFault{},
		},
		{
			reason:     "the next fault counts anew",
			looks:      []look{{0, fault, nil}, {1, "", nil}, {8, fault, nil}},
			wantFaults: []v1beta1.AttemptFault{stored("a", 8)}, wantFault: fault,
		},
		{
			reason:     "two faults for which nothing was bought leave the bound's room to the third",
			looks:      []look{{0, fault, nil}, {1, "", nil}, {8, fault, nil}, {9, "", nil}, {16, fault, nil}},
			wantFaults: []v1beta1.AttemptFault{stored("a", 16)}, wantFault: fault,
		},
		{
			reason: "two a day, and the third is withheld", looks: []look{{0, fault, nil}},
			former: []v1beta1.AttemptFault{stored("x", -60), stored("y", -30)},
			wantWithheld: fault + "; the machine stays, because 2 faults counted within 24 hours (node-x at " +
				"2026-11-23 11:00:00 UTC, node-y at 2026-11-23 11:30:00 UTC), so the engine itself may be the cause: check the logs of the " +
				"pods; to replace the machine before 2026-11-24 11:00:00 UTC, delete node node-a",
			wantNext: 23 * time.Hour,
		},
		{
			reason: "a day later the bound has room", looks: []look{{0, fault, nil}},
			former:     []v1beta1.AttemptFault{stored("x", -24*60), stored("y", -30)},
			wantFaults: []v1beta1.AttemptFault{stored("a", 0)}, wantFault: fault,
		},
		{
			reason: "the cloud's own announcement has no bound", former: []v1beta1.AttemptFault{stored("x", -60), stored("y", -30)},
			looks: []look{{0, fault, func(m *capacity.Machine) { m.Fault.Announced = true }}}, wantFault: fault,
		},
		{
			reason: "a pod that requests the next machine under the same UID has a new fault",
			looks: []look{{0, fault, nil}, {30, fault, func(m *capacity.Machine) {
				m.NodeName, m.Words.Initialized.Since = "another", at(20)
			}}},
			wantFaults: []v1beta1.AttemptFault{stored("a", 0), {UID: "a", Node: "another", Time: metav1.NewTime(at(30)), Message: fault}},
			wantFault:  fault,
		},
		{
			reason:     "and on the same node, too",
			looks:      []look{{0, fault, nil}, {30, fault, func(m *capacity.Machine) { m.Words.Initialized.Since = at(20) }}},
			wantFaults: []v1beta1.AttemptFault{stored("a", 0), stored("a", 30)}, wantFault: fault,
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			attempts := Attempts{
				{Number: 1, Reason: "Lost", Faults: test.former},
				{Number: 2, NodeClaims: []string{"m"}, ReadyTime: &noon, Claims: []v1beta1.AttemptClaim{{Name: "m", UID: "a", CreationTime: &noon}}},
			}
			var machine capacity.Machine
			next := never
			for _, look := range test.looks {
				machine = capacity.Machine{Name: "m", UID: "a", NodeName: "node-a", NodeReady: true, Initialized: true}
				if look.message != "" {
					machine.Fault = nodehealth.Fault{Message: look.message, Since: at(look.minute - 5), Grace: 5 * time.Minute}
				}
				if look.machine != nil {
					look.machine(&machine)
				}
				machines := Machines{machine}
				for range 2 { // another pass at the same time changes nothing
					machines[0] = machine
					next = attempts.NoteFaults(machines, nil, at(look.minute))
				}
				machine = machines[0]
			}
			if diff := cmp.Diff(test.wantFaults, attempts[1].Faults); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
			got := ""
			if machine.Fault.HasExpired(at(test.looks[len(test.looks)-1].minute)) {
				got = machine.Fault.Message
			}
			if got != test.wantFault || machine.Withheld != test.wantWithheld || next != test.wantNext {
				t.Errorf("fault %q, withheld %q, next look %s; want %q, %q, %s", got, machine.Withheld, next, test.wantFault, test.wantWithheld, test.wantNext)
			}
		})
	}
}

// TestOnlyReplacementsCount has a fault that counts at noon. Its node is healthy from then on, and the fault is gone after
// seven minutes.
func TestOnlyReplacementsCount(t *testing.T) {
	launched := func(m *capacity.Machine) { m.UID = "b" }
	requested := func(m *capacity.Machine) { *m = capacity.Machine{Name: m.Name, UID: "b"} }
	leaving := func(m *capacity.Machine) { m.UID, m.Deleting = "b", true }
	ended := attemptOf(3, "B")
	ended.Reason = v1beta1.ReasonNoCapacity
	tests := []struct {
		reason    string
		successor *v1beta1.Attempt
		machine   func(*capacity.Machine)
		isOver    bool // the Workspace is suspended before the fault is gone
		want      int
	}{
		{reason: "no ceiling has room", want: 0},
		{reason: "the cloud refuses the request", successor: &ended, want: 0},
		{reason: "a machine was requested", successor: new(attemptOf(3, "B")), machine: requested, want: 0},
		{reason: "a machine was launched", successor: new(attemptOf(3, "B")), machine: launched, want: 1},
		{reason: "a launched machine is already being deleted", successor: new(attemptOf(3, "B")), machine: leaving, want: 1},
		{reason: "the Workspace is suspended before a purchase", isOver: true, want: 0},
		{reason: "the Workspace is suspended after a purchase", successor: new(attemptOf(3, "B")), machine: launched, isOver: true, want: 1},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			faulty := readyOf(2, "A")
			faulty.Faults = []v1beta1.AttemptFault{{UID: "a", Node: "node-2-0", Time: noon, Message: "XID 79"}}
			attempts := Attempts{faulty}
			machines := Machines{machineOf(2, 0, "A", func(m *capacity.Machine) { m.UID = "a" })}
			if test.successor != nil {
				attempts = append(attempts, *test.successor)
			}
			if test.machine != nil {
				machines = append(machines, machineOf(3, 0, "B", test.machine))
			}
			attempts.NoteFaults(slices.Clone(machines), nil, noon.Time)
			if test.isOver {
				attempts.Release("suspended", 1, noon.Time)
			} else if test.successor != nil {
				Close(&attempts[1], Released("the earlier machines are suitable again"), 1, noon.Time)
			}
			attempts.NoteFaults(machines[:1], nil, noon.Add(7*time.Minute))
			if got := len(attempts.faultsSince(time.Time{})); got != test.want {
				t.Errorf("%d faults count, want %d", got, test.want)
			}
		})
	}
}

// TestBeginKeepsRecentFaults: other attempts must not displace the faults that the bound counts.
func TestBeginKeepsRecentFaults(t *testing.T) {
	ended := func(number int32, faults ...v1beta1.AttemptFault) v1beta1.Attempt {
		return v1beta1.Attempt{Number: number, Reason: "Lost", Faults: faults}
	}
	attempts := Attempts{
		ended(1, v1beta1.AttemptFault{UID: "old", Time: metav1.NewTime(noon.Add(-25 * time.Hour))}),
		ended(2, v1beta1.AttemptFault{UID: "recent", Time: metav1.NewTime(noon.Add(-time.Hour))}),
	}
	for number := int32(3); number <= 25; number++ {
		attempts.Begin(v1beta1.Attempt{Number: number, StartTime: noon})
		attempts.Last().Reason = "NoCapacity"
	}
	var got []int32
	for _, attempt := range attempts[:2] {
		got = append(got, attempt.Number)
	}
	if diff := cmp.Diff([]int32{2, 7}, got); diff != "" || len(attempts) != attemptLimit {
		t.Errorf("%d attempts, the first (-want +got):\n%s", len(attempts), diff)
	}
}

// TestNoteFaultsOfSparedGPUs has a machine with four GPUs. Some of them have been broken for long.
func TestNoteFaultsOfSparedGPUs(t *testing.T) {
	const lacks = "node n can allocate 3 of its 4 nvidia.com/gpu"
	planOf := func(instanceType string, gpus int) *render.Revision {
		made := plan("plan", instanceType, 1)
		made.Plan.GPUsPerNode, made.Plan.MachineGPUs = gpus, 4
		return made.Revision
	}
	ofGPU := nodehealth.Fault{Message: "a GPU has an XID", Since: noon.Add(-time.Hour)}
	ofNode := nodehealth.Fault{Message: "the driver is broken", Since: noon.Add(-time.Minute)}
	tests := []struct {
		reason           string
		plans            []*render.Revision
		gpus             int
		shortage         string
		ofGPU, ofNode    nodehealth.Fault
		wantFault        string
		wantMissingSince bool
	}{
		{reason: "the others are enough for the plan", plans: []*render.Revision{planOf("A", 1)}, gpus: 3, shortage: lacks, ofGPU: ofGPU},
		{reason: "exactly enough", plans: []*render.Revision{planOf("A", 3)}, gpus: 3, shortage: lacks, ofGPU: ofGPU},
		{
			reason: "too few", plans: []*render.Revision{planOf("A", 4)}, gpus: 3, shortage: lacks,
			wantFault: lacks, wantMissingSince: true,
		},
		{
			reason: "too few for the pods that run, though enough for the accepted plan",
			plans:  []*render.Revision{planOf("A", 4), planOf("A", 1)}, gpus: 3, shortage: lacks, wantFault: lacks, wantMissingSince: true,
		},
		{
			reason: "an accepted plan for other machines needs none of these", plans: []*render.Revision{planOf("A", 1), planOf("B", 4)},
			gpus: 3, shortage: lacks, ofGPU: ofGPU,
		},
		{
			reason: "a fault of the node concerns every plan", plans: []*render.Revision{planOf("A", 1)}, gpus: 3, shortage: lacks,
			ofGPU: ofGPU, ofNode: ofNode, wantFault: ofNode.Message,
		},
		{
			reason: "a broken GPU that the device plugin still offers may be the plan's", plans: []*render.Revision{planOf("A", 1)}, gpus: 4,
			ofGPU: ofGPU, wantFault: ofGPU.Message,
		},
		{
			reason: "nobody has planned a machine like this one", plans: []*render.Revision{planOf("B", 1)}, gpus: 3, shortage: lacks,
			wantFault: lacks, wantMissingSince: true,
		},
		{
			reason: "a GPU that the driver does not show is offered to nobody", plans: []*render.Revision{planOf("A", 1)}, gpus: 3, ofGPU: ofGPU,
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			attempts := Attempts{{Number: 1, NodeClaims: []string{"m"}, ReadyTime: &noon, Claims: []v1beta1.AttemptClaim{{Name: "m", UID: "a", CreationTime: &noon}}}}
			machines := Machines{{
				Name: "m", UID: "a", NodeName: "n", NodeReady: true, Initialized: true, InstanceType: "A", CapacityType: v1beta1.CapacityOnDemand,
				GPUs: test.gpus, Shortage: test.shortage, Fault: test.ofNode, GPUFault: test.ofGPU,
			}}
			attempts.NoteFaults(machines, test.plans, noon.Time)
			if got := machines[0].Fault.Message; got != test.wantFault {
				t.Errorf("fault %q, want %q", got, test.wantFault)
			}
			if got := attempts[0].Claims[0].GPUsMissingSince != nil; got != test.wantMissingSince {
				t.Errorf("the shortage counts: %v, want %v", got, test.wantMissingSince)
			}
		})
	}
}

// TestNoteFaultsWhilePluginRestarts has the observations of a machine while its device plugin restarts. The machine
// has spared a broken GPU for long. It stays unless the restart takes too long.
func TestNoteFaultsWhilePluginRestarts(t *testing.T) {
	const lacks = "node n can allocate fewer"
	made := plan("plan", "A", 1)
	made.Plan.GPUsPerNode, made.Plan.MachineGPUs = 1, 8
	ofGPU := nodehealth.Fault{Message: "a GPU is missing", Since: noon.Add(-24 * time.Hour), Grace: 5 * time.Minute}
	type look struct {
		second, gpus int
		shortage     string
	}
	spared := look{0, 7, lacks}
	tests := []struct {
		reason string
		looks  []look
		want   int // recorded faults
	}{
		{"none is offered for a minute", []look{spared, {60, 0, lacks}, {90, 0, lacks}, {120, 7, lacks}, {900, 7, lacks}}, 0},
		{"none is announced for a minute", []look{spared, {60, 0, ""}, {120, 7, lacks}, {900, 7, lacks}}, 0},
		{"all are offered for a minute", []look{spared, {60, 8, ""}, {120, 7, lacks}, {900, 7, lacks}}, 0},
		{"a second restart begins anew", []look{spared, {60, 0, lacks}, {120, 7, lacks}, {300, 0, lacks}, {420, 7, lacks}}, 0},
		{"the plugin does not come back", []look{spared, {60, 0, lacks}, {360, 0, lacks}}, 1},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			attempts := Attempts{{Number: 1, NodeClaims: []string{"m"}, ReadyTime: &noon, Claims: []v1beta1.AttemptClaim{
				{Name: "m", UID: "a", CreationTime: &noon},
			}}}
			for _, look := range test.looks {
				attempts.NoteFaults(Machines{{
					Name: "m", UID: "a", NodeName: "n", NodeReady: true, Initialized: true, InstanceType: "A", CapacityType: v1beta1.CapacityOnDemand,
					GPUs: look.gpus, Shortage: look.shortage, GPUFault: ofGPU,
				}}, []*render.Revision{made.Revision}, noon.Add(time.Duration(look.second)*time.Second))
			}
			if got := len(attempts[0].Faults); got != test.want {
				t.Errorf("%d faults counted, want %d", got, test.want)
			}
		})
	}
}

// TestNoteFaultsOfGroups: one program runs on all members of a group, so their faults count as one. Faults of
// independent machines count individually.
func TestNoteFaultsOfGroups(t *testing.T) {
	group := plan("plan", "A", 4)
	group.Worker = &corev1.PodTemplateSpec{}
	for _, test := range []struct {
		reason                               string
		made                                 *render.Revision
		wantFaults, wantWithheld, isReplaced int
	}{
		{reason: "a group", made: group.Revision, wantFaults: 1, isReplaced: 4},
		{reason: "independent machines", made: plan("plan", "A", 4).Revision, wantFaults: 2, wantWithheld: 2, isReplaced: 2},
	} {
		t.Run(test.reason, func(t *testing.T) {
			attempt := v1beta1.Attempt{Number: 1, ReadyTime: &noon}
			var seen Machines
			for _, name := range []string{"a", "b", "c", "d"} {
				attempt.NodeClaims = append(attempt.NodeClaims, name)
				seen = append(seen, capacity.Machine{
					Name: name, UID: types.UID(name), NodeName: "node-" + name, NodeReady: true, Initialized: true, InstanceType: "A",
					CapacityType: v1beta1.CapacityOnDemand, Fault: nodehealth.Fault{Message: "XID 79", Since: noon.Add(-time.Hour)},
				})
			}
			attempts := Attempts{attempt}
			var machines Machines
			for range 2 { // another pass changes nothing
				machines = slices.Clone(seen)
				attempts.NoteFaults(machines, []*render.Revision{test.made}, noon.Time)
			}
			withheld, replaced := 0, 0
			for i := range machines {
				if machines[i].Withheld != "" {
					withheld++
				}
				if machines[i].Fault.HasExpired(noon.Time) {
					replaced++
				}
			}
			if got := len(attempts[0].Faults); got != test.wantFaults || withheld != test.wantWithheld || replaced != test.isReplaced {
				t.Errorf("%d faults counted, %d machines withheld, %d replaced; want %d, %d, %d",
					got, withheld, replaced, test.wantFaults, test.wantWithheld, test.isReplaced)
			}
		})
	}
}

// TestNoteFaultsBetweenClocks: the clock behind the node's reports is ahead of ours.
func TestNoteFaultsBetweenClocks(t *testing.T) {
	attempts := Attempts{{Number: 1, NodeClaims: []string{"m"}, ReadyTime: &noon}}
	for range 3 {
		machine := capacity.Machine{
			Name: "m", UID: "a", NodeName: "n", NodeReady: true, Initialized: true, Fault: nodehealth.Fault{Message: "XID 79", Since: noon.Add(-time.Hour)},
		}
		machine.Words.Initialized.Since = noon.Add(20 * time.Second)
		attempts.NoteFaults(Machines{machine}, nil, noon.Time)
	}
	if got := len(attempts[0].Faults); got != 1 {
		t.Errorf("one fault counted %d times", got)
	}
}
