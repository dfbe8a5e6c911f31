// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/status"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/group"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	revisions "github.com/modelberth/modelberth/pkg/revision"
	"github.com/modelberth/modelberth/pkg/workload"
)

// scope is one pass over one Workspace: what was observed, and what the steps decided.
type scope struct {
	ws    *v1beta1.Workspace
	owner capacity.Owner
	// spec is the Workspace that plans are made for: as it is, or where its spec has no plan, as it was accepted last.
	spec *v1beta1.Workspace
	// before is the status that this pass began with.
	before v1beta1.WorkspaceStatus

	observation
	acceptance
	acquisition
	outcome
}

// observation is what is there. The step that observes writes it; the machines that a pass asks for and the StatefulSets
// that it writes are added.
type observation struct {
	revisions   revisions.History
	statefulSet *appsv1.StatefulSet
	workers     *appsv1.StatefulSet
	// group is what is remembered of the group that serves.
	group workload.Group
	// kaitoSet is the StatefulSet that KAITO's controller made, and kaito names all by which the Workspace is KAITO's.
	kaitoSet *appsv1.StatefulSet
	kaito    []string
	machines acquire.Machines
	// machineKind is what stands for a machine, as kubectl calls it.
	machineKind string
	pods        []corev1.Pod
	nodes       []corev1.Node
	// silence is what it means that nodes are not Ready.
	silence nodehealth.Silence
	// namespace is the metadata of the Workspace's namespace, as far as it decides something.
	namespace metav1.ObjectMeta
	// warnings are what was published about what says nothing of itself.
	warnings []diagnosis.Warning
	// words are how engines say what is wrong.
	words diagnosis.Words
}

// acceptance is what the pods are to run: what the spec comes to.
type acceptance struct {
	// planned says that it is decided what the current spec comes to: a plan, or none.
	planned bool
	// planErr says why there is no plan for the current spec.
	planErr *progress.StalledError
	// inputs are what the accepted plan was made from.
	inputs render.Inputs
	// revision is the accepted one: the plan and the rendered pods that everything follows.
	revision *revision
	// former is what the pods run on with while the machines of the accepted revision are got; nil otherwise.
	former *revision
	// runsOn is the number of the attempt whose machines alone the pods may run on; 0 where all of the
	// Workspace's will do.
	runsOn int32
}

// acquisition is how machines are got for the accepted revision.
type acquisition struct {
	// attempts as they stand now. persisted says that this pass has written them down, so that it knows the newest Workspace.
	attempts  acquire.Attempts
	persisted bool
	// surge is how the machines of two attempts are held at once.
	surge acquire.Surge
	// recreates says why the machines that serve are let go before others are got.
	recreates string
	// asksAgain says that others of the same kind take their place: that they are lost rules out nothing then.
	asksAgain bool
	// foreign are held machines that belong to no attempt that could be.
	foreign []string
	// leftNodes are the nodes that are not tried now.
	leftNodes []render.LeftNode
	// nothingToBuyWith says that no provisioner is installed.
	nothingToBuyWith bool
	// heldNow are the machines that the API server has, once it was asked.
	heldNow   acquire.Machines
	heldKnown bool
	// verdict is on the machines that are waited for: what was heard, before it is final.
	verdict refusal.Verdict
	// capacityErr says why machines could not be asked for.
	capacityErr error
}

// outcome is what this pass did, and when to look again.
type outcome struct {
	// isNew says that it put the finalizer on, before which nothing is bought.
	isNew bool
	// observed says that the observation is complete.
	observed bool
	// named says that the Services of the Workspace are there and its own.
	named bool
	// rolling says that it changed the pods, so that what is observed of them is past.
	rolling bool
	// groupStep is what is done about the group that serves.
	groupStep group.Step
	// created are the machines that it asked for.
	created []capacity.Created
	// exposed warns that pods can read the metadata of the machines that were asked for; empty where nothing says so.
	exposed string
	// wasted is what machines cost in USD that it gave up before they were of use.
	wasted float64
	// fellBack is the plan that it gave up for another one; empty where it did not.
	fellBack string
	// unheard is why it means nothing that nodes are not Ready; empty where it does.
	unheard string
	// engine has the figures of the engine; nil where it did not probe it.
	engine *status.Engine
	// finalized says that the Workspace is gone and there is nothing to report on.
	finalized bool
	// requeueAfter asks for another pass although nothing may happen.
	requeueAfter time.Duration
}

func newScope(ws *v1beta1.Workspace) *scope {
	return &scope{
		ws:    ws,
		owner: ownerOf(ws),
		spec:  ws,

		before:      *ws.Status.DeepCopy(),
		acquisition: acquisition{attempts: acquire.Attempts(ws.Status.Attempts).Clone()},
	}
}

func ownerOf(ws *v1beta1.Workspace) capacity.Owner {
	return capacity.Owner{Namespace: ws.Namespace, Name: ws.Name, UID: ws.UID}
}

// lookAgain asks for another pass after a while, or sooner.
func (o *outcome) lookAgain(after time.Duration) {
	after = max(after, acquire.ShortestLook)
	if o.requeueAfter == 0 || after < o.requeueAfter {
		o.requeueAfter = after
	}
}

// isDeleting says whether the Workspace is on its way out.
func (s *scope) isDeleting() bool { return !s.ws.DeletionTimestamp.IsZero() }

// servingMachines are the held machines that are of the kind that the accepted plan asks for, but for those
// that are held beside them.
func (s *scope) servingMachines() []capacity.Machine {
	if s.revision == nil {
		return nil
	}
	lost := s.attempts.LostUIDs()
	return slices.DeleteFunc(s.machines.Standing(), func(machine capacity.Machine) bool {
		return s.isHeld(machine.Name) || machine.Replacement || slices.Contains(lost, machine.UID) || !acquire.Fits(&machine, &s.revision.Revision)
	})
}

// hasMachines says whether every machine of the plan has been asked for, or is there already.
func (s *scope) hasMachines() bool {
	return s.isOnNodes() || s.revision != nil && len(s.servingMachines()) == s.revision.Plan.Nodes
}

// accepted returns the revision in use: the one that the status names, else the one that the pods
// were made from, else the newest; nil if there is none.
func (s *scope) accepted() *revision {
	var names []string
	if s.ws.Status.Plan != nil {
		names = append(names, s.ws.Status.Plan.Revision)
	}
	if s.statefulSet != nil {
		names = append(names, s.statefulSet.Annotations[v1beta1.AnnotationRevision])
	}
	for _, name := range names {
		if out := s.revisions.Named(name); out != nil {
			return out
		}
	}
	return s.revisions.Newest()
}
