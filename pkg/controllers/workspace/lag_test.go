// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/lessons"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/revision"
)

// live is a provisioner with these machines in the cache. names are the machines in the API server, and usable those
// that are initialized. It counts releases.
type live struct {
	account
	machines []capacity.Machine
	names    []string
	usable   []string
	uid      types.UID
	released *int
}

func (live) Kind(capacity.Owner) string { return "nodeclaim" }

func (l live) Observe(context.Context, capacity.Owner, []capacity.Created, string) ([]capacity.Machine, error) {
	return l.machines, nil
}

func (l live) Held(context.Context, capacity.Owner, []capacity.Created) ([]capacity.Machine, error) {
	var out []capacity.Machine
	for _, name := range l.names {
		out = append(out, capacity.Machine{Name: name, UID: l.uid, Initialized: slices.Contains(l.usable, name)})
	}
	return out, nil
}

func (live) Events(context.Context, []types.UID) ([]refusal.Event, error) { return nil, nil }

func (live) Class(context.Context, v1beta1.NodeClassReference) (refusal.ClassState, string, error) {
	return refusal.ClassReady, "", nil
}

func (l live) Release(context.Context, capacity.Owner) ([]string, error) {
	*l.released++
	return nil, nil
}

// server returns a client for an API server with these objects.
func server(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(known).WithObjects(objects...).Build()
}

func revisionOf(owner *v1beta1.Workspace, name string, number int64) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: name,
			Labels:          map[string]string{v1beta1.LabelRevisionOwner: "chat", v1beta1.LabelManagedBy: v1beta1.ManagedBy},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind))},
		},
		Revision: number,
	}
}

// TestObserveReadsTheRevisionsThatTheStatusNames: observe finds revisions that the cache lacks. Otherwise their
// machines would count as another plan's and be released, or an older plan would buy the wrong machines.
func TestObserveReadsTheRevisionsThatTheStatusNames(t *testing.T) {
	ours, other := workspaceObject(), workspaceObject()
	other.UID = "former"
	former, newest, foreign := revisionOf(ours, "chat-former", 1), revisionOf(ours, "chat-newest", 2), revisionOf(other, "chat-newest", 2)
	plan := v1beta1.WorkspaceStatus{Plan: &v1beta1.PlanStatus{Revision: "chat-newest"}}
	older := &v1beta1.PlanStatus{Revision: "chat-former"}
	ended := v1beta1.WorkspaceStatus{Plan: older, Attempts: []v1beta1.Attempt{{Number: 1, Reason: v1beta1.ReasonQuota, Revision: "chat-newest"}}}
	open := v1beta1.WorkspaceStatus{Plan: older, Attempts: []v1beta1.Attempt{{Number: 1, Revision: "chat-newest"}, {Number: 2, Revision: "chat-former"}}}
	past := v1beta1.WorkspaceStatus{Plan: older, Attempts: []v1beta1.Attempt{
		{Number: 1, Reason: v1beta1.ReasonQuota, Revision: "chat-newest"}, {Number: 2, Revision: "chat-former"},
	}}
	tests := []struct {
		reason string
		status v1beta1.WorkspaceStatus
		shown  []client.Object
		there  []client.Object
		want   []string
	}{
		{"it is shown", plan, []client.Object{former, newest}, nil, []string{"chat-former", "chat-newest"}},
		{"the plan's is yet to be shown", plan, []client.Object{former}, []client.Object{former, newest}, []string{"chat-former", "chat-newest"}},
		{"an older one is yet to be shown", plan, []client.Object{newest}, []client.Object{former, newest}, []string{"chat-newest"}},
		{"that of the attempt that ended last", ended, []client.Object{former}, []client.Object{former, newest}, []string{"chat-former", "chat-newest"}},
		{"that of an attempt that is open", open, nil, []client.Object{former, newest}, []string{"chat-former", "chat-newest"}},
		{"that of an attempt that is past", past, []client.Object{former}, []client.Object{former, newest}, []string{"chat-former"}},
		{"the status is lost", v1beta1.WorkspaceStatus{}, []client.Object{former}, []client.Object{former, newest}, []string{"chat-former", "chat-newest"}},
		{"frozen, with the revision of an edit that was reverted: nobody is asked", v1beta1.WorkspaceStatus{
			Conditions: []metav1.Condition{{Type: v1beta1.ConditionPlanned, Reason: v1beta1.ReasonFrozen}},
		}, []client.Object{former}, []client.Object{former, newest}, []string{"chat-former"}},
		{"nothing is pinned yet: nobody is asked", v1beta1.WorkspaceStatus{}, nil, []client.Object{newest}, nil},
		{"it is gone", plan, []client.Object{former}, []client.Object{former}, []string{"chat-former"}},
		{"it is that of a Workspace that is gone", plan, []client.Object{former}, []client.Object{former, foreign}, []string{"chat-former"}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			r := New(Config{
				Client: server(t, test.shown...), Live: server(t, test.there...), Provisioner: live{}, Clock: testclock.NewFakePassiveClock(now.Time),
			})
			ws := workspaceObject()
			ws.Status = test.status
			if len(test.status.Conditions) > 0 {
				ws.Annotations = map[string]string{v1beta1.AnnotationAdopted: `{"uid":"uid-1","generation":3}`}
			}
			s := scope.New(ws)
			if err := r.observer.observe(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range s.Revisions.Objects {
				got = append(got, s.Revisions.Objects[i].Name)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestObserveAsksForTheSetOfMachinesThatServe covers the cache of a new leader that has the status and the machines but
// lacks the StatefulSet. The serving machines must not be released.
func TestObserveAsksForTheSetOfMachinesThatServe(t *testing.T) {
	ours, other := workspaceObject(), workspaceObject()
	other.UID = "former"
	setOf := func(owner *v1beta1.Workspace) *appsv1.StatefulSet {
		set := pinnedSet(1)
		set.Namespace, set.Name, set.UID = "team-a", "chat", "set-1"
		set.Labels = map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy}
		set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind))}
		return set
	}
	ready := v1beta1.Attempt{Number: 1, NodeClaims: []string{"chat-aaaa"}, ReadyTime: &now}
	began := v1beta1.Attempt{Number: 1, NodeClaims: []string{"chat-aaaa"}}
	works, comes := machine(), machine(launching)
	tests := []struct {
		reason  string
		there   client.Object
		attempt *v1beta1.Attempt
		machine capacity.Machine
		waits   bool
	}{
		{"the attempt got its machines", setOf(ours), &ready, comes, true},
		{"the status is lost, and a machine works", setOf(ours), nil, works, true},
		{"nothing works yet: nobody is asked", setOf(ours), &began, comes, false},
		{"it is that of a Workspace that is gone", setOf(other), &ready, works, false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			r := New(Config{
				Client: server(t), Live: server(t, test.there),
				Provisioner: live{machines: []capacity.Machine{test.machine}}, Clock: testclock.NewFakePassiveClock(now.Time),
			})
			s := scope.New(workspaceObject())
			if test.attempt != nil {
				s.Attempts = []v1beta1.Attempt{*test.attempt}
			}
			err := r.observer.observe(t.Context(), s)
			if progress.IsWaiting(err) != test.waits || err != nil != test.waits || s.IsObserved == test.waits {
				t.Errorf("error %v, observed %v; want to wait: %v", err, s.IsObserved, test.waits)
			}
		})
	}
}

// TestHoldAsksWhetherTroubleIsOver covers the cache of a new leader that lacks the node fault behind a switchover. The
// machines on their way must not be released, only to be requested again.
func TestHoldAsksWhetherTroubleIsOver(t *testing.T) {
	for name, isOld := range map[string]bool{"it is over": false, "the node has changed since": true} {
		t.Run(name, func(t *testing.T) {
			set := pinnedSet(0)
			set.Namespace, set.Name = "team-a", "chat"
			kube := server(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, set)
			node := corev1.Node{}
			for _, object := range []client.Object{&node, set} {
				if object != set {
					object.SetName("node-1")
				}
				if err := kube.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
					t.Fatal(err)
				}
			}
			if isOld {
				node.ResourceVersion = "1"
			}
			r := New(Config{Live: kube, Provisioner: apart{}, Clock: testclock.NewFakePassiveClock(now.Time)})
			s := scope.New(workspaceObject())
			s.Revision, s.StatefulSet, s.Nodes = accepted(1), set, []corev1.Node{node}
			for number := int32(1); number <= 2; number++ {
				begin(s, s.Revision, number, names(t, number), now.Time)
			}
			s.Attempts[0].ReadyTime = &now
			s.Machines = []capacity.Machine{machine(func(m *capacity.Machine) { m.Name = names(t, 1)[0] })}
			err := r.executor.Read(t.Context(), s, acquire.Read{Needs: acquire.NeedsPods, Attempt: 1})
			if apierrors.IsConflict(err) != isOld || err != nil != isOld {
				t.Errorf("error %v, want a conflict: %v", err, isOld)
			}
		})
	}
}

// TestSuspendKnowsTheNewest: a pass over an outdated suspension deletes nothing.
func TestSuspendKnowsTheNewest(t *testing.T) {
	set := readySet()
	set.Namespace, set.Name = "team-a", "chat"
	kube := server(t, workspaceObject(), set)
	ws := &v1beta1.Workspace{}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(workspaceObject()), ws); err != nil {
		t.Fatal(err)
	}
	ws.ResourceVersion = "1"
	r := New(Config{Client: kube, Live: kube, Clock: testclock.NewFakePassiveClock(now.Time)})
	s := scope.New(ws)
	s.StatefulSet = set
	if err := r.ensureSuspended(t.Context(), s); !apierrors.IsConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(set), &appsv1.StatefulSet{}); err != nil {
		t.Errorf("the StatefulSet is gone: %v", err)
	}
}

// TestNextKnowsItsOwnRefusals covers a refusal that an earlier leader wrote late: the Workspace's status has it, but
// the memory of all Workspaces lacks it.
func TestNextKnowsItsOwnRefusals(t *testing.T) {
	ended := metav1.NewTime(now.Add(-time.Minute))
	ws := workspaceObject()
	ws.Status.Attempts = []v1beta1.Attempt{{
		Number: 1, InstanceType: "X", CapacityType: v1beta1.CapacitySpot, StartTime: ended, EndTime: &ended, Reason: v1beta1.ReasonQuota,
		Scope: "sku/X/*/spot", Cooldown: &metav1.Duration{Duration: time.Hour},
	}, {Number: 2, Reason: v1beta1.ReasonReleased}}
	r := New(Config{
		Client: server(t), Live: server(t), Provisioner: live{}, Planner: thrifty{}, Catalog: emptyCatalog{}, Memory: &cooldown.Memory{},
		Clock: testclock.NewFakePassiveClock(now.Time),
	})
	s := scope.New(ws)
	s.Revision = accepted(1)
	if err := r.executor.Next(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	offer := refusal.Offering{InstanceType: "X", CapacityType: v1beta1.CapacitySpot}
	if got := r.Memory.Exclusions(now.Time, lessons.Asker(ws), slices.Values([]refusal.Offering{offer})); len(got) != 1 {
		t.Errorf("left alone are %v, want what its first attempt was refused", got)
	}
}

// TestPinKnowsTheNewest: a pass over an outdated Workspace pins no revision, because later passes would use it.
func TestPinKnowsTheNewest(t *testing.T) {
	kube := server(t, workspaceObject())
	ws := &v1beta1.Workspace{}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(workspaceObject()), ws); err != nil {
		t.Fatal(err)
	}
	ws.ResourceVersion = "1"
	r := New(Config{Client: kube, Live: kube})
	s := scope.New(ws)
	s.Revision = accepted(1)
	if err := r.pins.Pin(t.Context(), s, accepted(2)); !apierrors.IsConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
	pinned := &appsv1.ControllerRevisionList{}
	if err := kube.List(t.Context(), pinned); err != nil || len(pinned.Items) > 0 {
		t.Errorf("it pinned %d revisions, error %v", len(pinned.Items), err)
	}
}

// TestPinKnowsWhatFollows covers an earlier leader that pinned a fallback plan, and ended before it recorded an
// attempt. Once the cache shows that plan, it is the accepted one, and the machines of the plan before it would be
// released.
func TestPinKnowsWhatFollows(t *testing.T) {
	ours, other := workspaceObject(), workspaceObject()
	other.UID = "former"
	hash, err := revision.Hash(render.Inputs{})
	if err != nil {
		t.Fatal(err)
	}
	first, second := "chat-"+revision.ShortHash(hash), "chat-"+revision.ShortHash(hash)+"-2"
	refused := []v1beta1.Attempt{{Number: 1, Reason: v1beta1.ReasonQuota, Revision: first}}
	tests := []struct {
		reason   string
		isNew    bool
		attempts []v1beta1.Attempt
		there    client.Object
		isOld    bool
	}{
		{"another plan follows a refusal", false, refused, revisionOf(ours, second, 2), true},
		{"another follows for want of money, before anything was asked for", false, nil, revisionOf(ours, second, 2), true},
		{"none does", false, refused, revisionOf(ours, first, 1), false},
		{"it is that of a Workspace that is gone", false, refused, revisionOf(other, second, 2), false},
		{"it is the first pass: nobody is asked", true, nil, revisionOf(ours, second, 2), false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			r := New(Config{Live: server(t, test.there)})
			s := scope.New(ours)
			s.Revision, s.Attempts, s.IsNew = accepted(1), test.attempts, test.isNew
			s.Revisions.Objects = []appsv1.ControllerRevision{*revisionOf(ours, first, 1)}
			if err := r.pins.Pin(t.Context(), s, s.Revision); progress.IsWaiting(err) != test.isOld || err != nil != test.isOld {
				t.Errorf("error %v, want to wait: %v", err, test.isOld)
			}
		})
	}
}

// TestGroupsKnowTheNewestTemplate covers the cache of a new leader that lacks the newest template. The pods of that
// template must not be deleted, again and again.
func TestGroupsKnowTheNewestTemplate(t *testing.T) {
	set := func(name, version string) *appsv1.StatefulSet {
		out := pinnedSet(0)
		out.Namespace, out.Name, out.UID, out.ResourceVersion = "team-a", name, types.UID("uid of "+name), version
		out.Status.UpdateRevision = "older"
		return out
	}
	another, workers := set("chat", "1"), set("chat-worker", "1")
	another.UID = "another"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: "chat-0", UID: "pod-1", Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: "newer"},
	}}
	tests := []struct {
		reason  string
		leader  *appsv1.StatefulSet
		workers *appsv1.StatefulSet
		isOld   bool
	}{
		{"the pod is of a former template", set("chat", "1"), workers, false},
		{"the cache lacks a template or the status of one", set("chat", "2"), workers, true},
		{"the set is another one", another, workers, true},
		{"the set is gone", set("someone-else", "1"), workers, true},
		{"the cache lacks a template of the workers", set("chat", "1"), set("chat-worker", "2"), true},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			kube := server(t, pod, test.leader, test.workers)
			r := New(Config{Client: kube, Live: kube, Clock: testclock.NewFakePassiveClock(now.Time)})
			s := scope.New(workspaceObject())
			s.Revision, s.Pods = accepted(2), []corev1.Pod{*pod}
			s.StatefulSet, s.Workers = set("chat", "1"), workers
			s.Revision.Worker = &corev1.PodTemplateSpec{}
			if err := r.workloads.ensureGroup(t.Context(), s); apierrors.IsConflict(err) != test.isOld || err != nil != test.isOld {
				t.Errorf("error %v, want a conflict: %v", err, test.isOld)
			}
			err := kube.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{})
			if isThere := err == nil; isThere != test.isOld {
				t.Errorf("the pod is there: %v, want %v (%v)", isThere, test.isOld, err)
			}
		})
	}
}

// TestReportNamesNoPlanThatIsNotKnown covers a Workspace that continues with an older plan while the plan for its spec
// is unknown. If the status named the older plan, the next pass would buy it for the new spec.
func TestReportNamesNoPlanThatIsNotKnown(t *testing.T) {
	s := scope.New(workspaceObject())
	s.Workspace.Status.Plan = &v1beta1.PlanStatus{Revision: "chat-newest"}
	s.Revision = accepted(1)
	if got, _ := s.Status(errors.New("nobody answers"), now); got.Plan.Revision != "chat-newest" {
		t.Errorf("it names %s, want the plan that was made before", got.Plan.Revision)
	}
}

// TestReleaseKnowsTheNewest: a pass without a status to write confirms that it has the newest Workspace before it
// releases machines. A newer status may have an attempt with these machines.
func TestReleaseKnowsTheNewest(t *testing.T) {
	for name, isOld := range map[string]bool{"it began from the newest": false, "another one was written since": true} {
		t.Run(name, func(t *testing.T) {
			released, kube := 0, server(t, workspaceObject())
			ws := &v1beta1.Workspace{}
			if err := kube.Get(t.Context(), client.ObjectKeyFromObject(workspaceObject()), ws); err != nil {
				t.Fatal(err)
			}
			if isOld {
				ws.ResourceVersion = "1"
			}
			r := New(Config{Live: kube, Provisioner: live{released: &released}, Clock: testclock.NewFakePassiveClock(now.Time)})
			if err := r.executor.Release(t.Context(), scope.New(ws)); apierrors.IsConflict(err) != isOld || err != nil != isOld {
				t.Errorf("error %v, want a conflict: %v", err, isOld)
			}
			if (released == 0) != isOld {
				t.Errorf("machines were let go %d times", released)
			}
		})
	}
}
