// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/render"
)

// Plan is a stored plan.
type Plan struct {
	Name string
	*render.Revision
}

// IsGroup reports whether several machines serve the model together; false for nil.
func (p *Plan) IsGroup() bool { return p != nil && p.Worker != nil }

// Snapshot has the facts that one pass has read about the machines of a Workspace. They come from caches, except Live:
// it has the results of live reads that a decision needed.
type Snapshot struct {
	Workspace *v1beta1.Workspace
	// Accepted is the plan to acquire machines for. Running is the plan of the running pods. Each is nil if there is
	// none.
	Accepted, Running *Plan
	Attempts          Attempts
	Machines          Machines
	Pods              Pods
	// Judge returns the verdicts on machines.
	Judge Judge
	// Surge describes how the Workspace holds the machines of two attempts at once. Decide finds the serving attempt.
	Surge Surge
	// Recreates is the reason to release the serving machines before others are acquired; empty if there is none.
	// AsksAgain: machines of the same kind replace the serving ones, so their end excludes no offer.
	Recreates string
	AsksAgain bool
	// IsMended: the cause that ended the last attempt has been fixed.
	IsMended bool
	// Foreign are the names of held machines that cannot belong to any attempt.
	Foreign []string
	// IsNew: this pass added the finalizer, so no earlier pass requested machines.
	IsNew  bool
	Lookup Lookup
	Live   Live
}

// Pods is the state of the Workspace's StatefulSet and its pods.
type Pods struct {
	// HasSet: the StatefulSet exists. Pinned is the number of the attempt to whose machines it pins the pods; 0 if
	// there is none.
	HasSet bool
	Pinned int32
	// Nodes are the names of the nodes on which pods run.
	Nodes []string
	// IsRolledOut: the pods match the StatefulSet. IsAnswering: they answer, or will again shortly. HasLeader: the pod
	// that answers requests is ready.
	IsRolledOut, IsAnswering, HasLeader bool
	// IsReady: a pod that answers requests is ready, on whichever machine.
	IsReady bool
	// FetchProof is the time at which the oldest running fetch of weights has proven its progress, possibly in the
	// future; zero if no fetch runs.
	FetchProof time.Time
}

// Live has the results of live reads. Once they confirm the cached objects, a decision on these is as good as one on
// live objects.
type Live struct {
	// AreMachinesConfirmed: AwaitMachines found the same Machines in the API server.
	AreMachinesConfirmed bool
	// ArePodsConfirmed: the API server has the same StatefulSet, and the same nodes of the serving machines.
	ArePodsConfirmed bool
	// Reasons has why machines ended, by attempt number.
	Reasons map[int32]*Reasons
}

// Lookup answers from names, settings and stored plans, without a read.
type Lookup interface {
	// Plan returns a stored plan; nil if it is unknown.
	Plan(name string) *Plan
	// Names returns the names of the machines of an attempt, which follow from its number.
	Names(attempt int32, count int) ([]string, error)
	// Offering returns the offering of an attempt's request.
	Offering(attempt *v1beta1.Attempt) refusal.Offering
	// Class returns the name of the node class of a plan's machines.
	Class(plan *Plan) string
	// Zones returns the zones in which an offering was cooling down at a time.
	Zones(at time.Time, offer refusal.Offering) []string
	// Forbidden returns why no machine may be bought for the accepted plan today; empty if it may.
	Forbidden() string
	// HasBudget reports whether a monthly budget stops purchases for the Workspace.
	HasBudget() bool
	// Failing reports whether the pods on the machines of an attempt fail permanently, and how.
	Failing(attempt *v1beta1.Attempt) (string, bool)
	// Fault returns the last known fault of the pods; empty if there is none.
	Fault() string
}

// Need is a live read that a decision lacks. A confirmation compares cached objects with the API server,
// and ends the pass if they differ.
type Need int

// The needs.
const (
	NeedsNothing Need = iota
	// NeedsMachines: a confirmation of the machines.
	NeedsMachines
	// NeedsPods: a confirmation of the StatefulSet, and of the nodes of the machines of an attempt.
	NeedsPods
	// NeedsReasons: the reasons for the end of machines.
	NeedsReasons
)

// Read is the live read that a decision lacks. Attempt is the number of the attempt in question, and Lost are the UIDs
// of its lost machines.
type Read struct {
	Needs   Need
	Attempt int32
	Lost    []types.UID
}

// missing is the error of a decision that needs a read.
type missing struct{ Read }

func (*missing) Error() string { return "the decision needs a live read" }

// Open returns the newest open attempt other than the serving one, or nil.
func (s *Snapshot) Open() *v1beta1.Attempt { return s.Attempts.OpenBut(s.Surge.Serving) }

// Serving returns the attempt that serves while a later one acquires machines, or nil.
func (s *Snapshot) Serving() *v1beta1.Attempt { return s.Attempts.OpenNumber(s.Surge.Serving) }

// PlannedMachines returns the standing machines of the accepted plan's kind, except those of the serving attempt.
func (s *Snapshot) PlannedMachines() Machines {
	lost := s.Attempts.LostUIDs()
	return slices.DeleteFunc(s.Machines.Standing(), func(machine capacity.Machine) bool {
		return s.isServing(machine.Name) || machine.Replacement || slices.Contains(lost, machine.UID) ||
			!Fits(&machine, s.Accepted.Revision)
	})
}

// isServing reports whether a machine belongs to the serving attempt.
func (s *Snapshot) isServing(machine string) bool {
	serving := s.Serving()
	return serving != nil && slices.Contains(serving.NodeClaims, machine)
}

// isKnown reports whether a machine belongs to an attempt of the status.
func (s *Snapshot) isKnown(machine string) bool {
	return slices.Contains(s.Foreign, machine) || s.Attempts.IsNamed(machine)
}
