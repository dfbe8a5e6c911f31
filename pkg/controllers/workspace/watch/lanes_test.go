// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelberth/modelberth/api/v1beta1"
)

func named(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team-a", Name: name}}
}

// startsWithS reports whether the Workspace of a test is settled.
func startsWithS(request reconcile.Request) bool { return strings.HasPrefix(request.Name, "s") }

// TestLanes covers the order of requests: the names of settled Workspaces begin with s.
func TestLanes(t *testing.T) {
	for _, test := range []struct {
		reason, pushed, want string
	}{
		{"settled Workspaces keep their order", "s1 s2 s3", "s1 s2 s3"},
		{"so do the others", "a b c", "a b c"},
		{"an unsettled Workspace overtakes settled ones", "s1 s2 a s3 b", "a b s1 s2 s3"},
		{"settled Workspaces get a share", "s1 s2 a b c d e f g h i", "a b c d s1 e f g h s2 i"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			l := newLanes(startsWithS)
			for name := range strings.FieldsSeq(test.pushed) {
				l.Push(named(name))
			}
			var got []string
			for l.Len() > 0 {
				got = append(got, l.Pop().Name)
			}
			if diff := cmp.Diff(strings.Fields(test.want), got); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTouch: an edit of a settled Workspace takes its request to the front, and the request leaves once.
func TestTouch(t *testing.T) {
	edited := false
	l := newLanes(func(request reconcile.Request) bool { return request.Name != "edited" || !edited })
	for _, name := range []string{"first", "edited", "last"} {
		l.Push(named(name))
	}
	l.Touch(named("first"))
	edited = true
	l.Touch(named("edited"))
	l.Touch(named("edited"))
	if l.Len() != 3 {
		t.Errorf("%d requests are stored, want 3", l.Len())
	}
	got := []string{l.Pop().Name}
	edited = false
	l.Push(named("edited")) // settled again
	for l.Len() > 0 {
		got = append(got, l.Pop().Name)
	}
	if diff := cmp.Diff([]string{"edited", "first", "edited", "last"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if len(l.waiting) > 0 {
		t.Errorf("%v are left", l.waiting)
	}
}

// TestLanesLoseNothing adds random requests of Workspaces that change meanwhile. Like any queue of a controller, this one
// must return each request that was added since the last pass, exactly once.
func TestLanesLoseNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	settled := map[string]bool{}
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{
		Queue: newLanes(func(request reconcile.Request) bool { return settled[request.Name] }),
	})
	defer queue.ShutDown()
	added := map[string]bool{}
	for range 20_000 {
		name := string(rune('a' + random.IntN(20)))
		switch random.IntN(3) {
		case 0:
			settled[name] = random.IntN(2) == 0
		case 1:
			queue.Add(named(name))
			added[name] = true
		default:
			if queue.Len() != len(added) {
				t.Fatalf("%d requests are stored, want %d", queue.Len(), len(added))
			}
			if len(added) == 0 {
				continue
			}
			request, _ := queue.Get()
			if !added[request.Name] {
				t.Fatalf("%s came, which was not added", request.Name)
			}
			delete(added, request.Name)
			queue.Done(request)
		}
	}
}

// TestQueue covers the controller's own queue: a request that arrives during its pass, or after a delay, comes in its
// lane.
func TestQueue(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cached := fake.NewClientBuilder().WithScheme(scheme)
	for _, name := range []string{"s1", "s2", "new"} {
		ws := &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}
		if startsWithS(named(name)) {
			ws.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionWorkspaceSucceeded, Status: metav1.ConditionTrue}}
		}
		cached.WithObjects(ws)
	}
	queue := observer{cached.Build()}.newQueue("test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	var got []string
	pass := func(meanwhile ...string) {
		request, _ := queue.Get()
		for _, name := range meanwhile {
			queue.Add(named(name))
		}
		queue.Done(request)
		got = append(got, request.Name)
	}
	for _, name := range []string{"s1", "s2", "new"} {
		queue.Add(named(name))
	}
	pass("new")
	pass()
	pass("s1")
	pass()
	pass()
	queue.AddAfter(named("new"), time.Millisecond)
	pass()
	if diff := cmp.Diff([]string{"new", "new", "s1", "s2", "s1", "new"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestIsSettled covers the Workspaces whose passes may wait.
func TestIsSettled(t *testing.T) {
	workspace := func(status metav1.ConditionStatus, observed int64) *v1beta1.Workspace {
		ws := &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat", Generation: 2}}
		ws.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionWorkspaceSucceeded, Status: status, ObservedGeneration: observed}}
		return ws
	}
	deleted := workspace(metav1.ConditionTrue, 2)
	deleted.DeletionTimestamp, deleted.Finalizers = new(metav1.Now()), []string{v1beta1.Finalizer}
	fresh := workspace(metav1.ConditionTrue, 2)
	fresh.Status.Conditions = nil
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		reason string
		ws     *v1beta1.Workspace
		name   string
		want   bool
	}{
		{"it serves", workspace(metav1.ConditionTrue, 2), "chat", true},
		{"it serves an earlier spec", workspace(metav1.ConditionTrue, 1), "chat", false},
		{"it starts or fails", workspace(metav1.ConditionFalse, 2), "chat", false},
		{"it is new", fresh, "chat", false},
		{"it is being deleted", deleted, "chat", false},
		{"it is gone, and something may be left to remove", workspace(metav1.ConditionTrue, 2), "other", false},
	} {
		t.Run(test.reason, func(t *testing.T) {
			cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(test.ws).Build()
			if got := (observer{cached}).isSettled(named(test.name)); got != test.want {
				t.Errorf("settled: %t, want %t", got, test.want)
			}
		})
	}
}
