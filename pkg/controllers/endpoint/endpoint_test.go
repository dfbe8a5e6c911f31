// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
)

// server is an Applier that records the written Services.
type server struct {
	applied []string
	err     error
	// meanwhile runs while a Service is written.
	meanwhile func()
}

func (s *server) Apply(_ context.Context, owner, desired client.Object) (bool, error) {
	if s.meanwhile != nil {
		s.meanwhile()
	}
	s.applied = append(s.applied, string(owner.GetUID())+" "+desired.GetAnnotations()["is"])
	return s.err == nil, s.err
}

// key returns the name of the only Workspace of these tests.
func key() types.NamespacedName { return types.NamespacedName{Namespace: "team", Name: "chat"} }

func owner(uid types.UID) *v1beta1.Workspace {
	return &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "chat", UID: uid}}
}

func service(is string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "chat", Annotations: map[string]string{"is": is}}}
}

// started returns a running Queue, and the number of its calls to tell.
func started(t *testing.T, applier Applier) (q *Queue, told *int) {
	t.Helper()
	q, told = New(applier, clock.RealClock{}), new(int)
	q.tell = func(types.NamespacedName) { *told++ }
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	if err := q.start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	return q, told
}

// work writes the Services that are due, and returns the last error.
func work(t *testing.T, q *Queue) error {
	t.Helper()
	var err error
	for q.queue.Len() > 0 {
		request, _ := q.queue.Get()
		_, err = q.Reconcile(t.Context(), request)
		q.queue.Done(request)
	}
	return err
}

func TestOrderedServicesAreWritten(t *testing.T) {
	tests := []struct {
		reason string
		order  func(q *Queue) error
		want   []string
	}{
		{"one", func(q *Queue) error { return q.Order(owner("a"), service("1")) }, []string{"a 1"}},
		{"the same twice is written once", func(q *Queue) error {
			return errors.Join(q.Order(owner("a"), service("1")), q.Order(owner("a"), service("1")))
		}, []string{"a 1"}},
		{"the last of two counts", func(q *Queue) error {
			return errors.Join(q.Order(owner("a"), service("1")), q.Order(owner("a"), service("2")))
		}, []string{"a 2"}},
		{"a Workspace of the same name made again has its own", func(q *Queue) error {
			return errors.Join(q.Order(owner("a"), service("1")), q.Order(owner("b"), service("1")))
		}, []string{"b 1"}},
		{"of a Workspace that is gone", func(q *Queue) error {
			err := q.Order(owner("a"), service("1"))
			q.Forget(key())
			return err
		}, nil},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			api := &server{}
			q, _ := started(t, api)
			if err := test.order(q); err != nil {
				t.Fatal(err)
			}
			if err := work(t, q); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, api.applied); diff != "" {
				t.Errorf("wrote (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOrderBeforeTheStart: a Service ordered before the controller runs is not lost.
func TestOrderBeforeTheStart(t *testing.T) {
	api := &server{}
	early := New(api, clock.RealClock{})
	if err := early.Order(owner("a"), service("1")); err != nil {
		t.Fatal(err)
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	if err := early.start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	if err := work(t, early); err != nil || len(api.applied) != 1 {
		t.Errorf("wrote %v, %v; want the Service", api.applied, err)
	}
}

// TestOrderMeanwhile: a Service ordered during the write of another version is written after it.
func TestOrderMeanwhile(t *testing.T) {
	api := &server{}
	q, _ := started(t, api)
	api.meanwhile = func() {
		api.meanwhile = nil
		if err := q.Order(owner("a"), service("2")); err != nil {
			t.Error(err)
		}
	}
	if err := q.Order(owner("a"), service("1")); err != nil {
		t.Fatal(err)
	}
	if err := work(t, q); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a 1", "a 2"}, api.applied); diff != "" {
		t.Errorf("wrote (-want +got):\n%s", diff)
	}
}

// TestImpossibleService: a failure is reported to the Workspace once, and returned to every later order of the same
// Service until it is fixed.
func TestImpossibleService(t *testing.T) {
	refused := errors.New("exceeded quota: services")
	api := &server{err: refused}
	q, told := started(t, api)
	if err := q.Order(owner("a"), service("1")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := q.Reconcile(t.Context(), reconcile.Request{NamespacedName: key()}); !errors.Is(err, refused) {
			t.Fatalf("error %v, want that of the API server, so that it is tried again", err)
		}
	}
	if *told != 1 {
		t.Errorf("told %d times, want once", *told)
	}
	if err := q.Order(owner("a"), service("1")); !errors.Is(err, refused) {
		t.Errorf("whoever orders it again hears %v", err)
	}
	if err := q.Order(owner("a"), service("2")); err != nil {
		t.Errorf("another Service, which nobody has tried, fails: %v", err)
	}
	api.err = nil
	if _, err := q.Reconcile(t.Context(), reconcile.Request{NamespacedName: key()}); err != nil {
		t.Fatal(err)
	}
	if err := q.Order(owner("a"), service("1")); err != nil {
		t.Errorf("what failed once fails for ever: %v", err)
	}
}

// TestServiceWithTakenName: a taken name is not an error of the controller, is reported to the Workspace, and is
// retried.
func TestServiceWithTakenName(t *testing.T) {
	tests := []struct {
		reason string
		err    error
		again  time.Duration
	}{
		{"somebody else has it", &apply.TakenError{Kind: "Service", Namespace: "team", Name: "chat"}, time.Minute},
		{"a former one is on its way out", fmt.Errorf("applying: %w", &apply.TerminatingError{Kind: "Service"}), 2 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			q, told := started(t, &server{err: test.err})
			if err := q.Order(owner("a"), service("1")); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				result, err := q.Reconcile(t.Context(), reconcile.Request{NamespacedName: key()})
				if want := (reconcile.Result{RequeueAfter: test.again}); result != want || err != nil {
					t.Errorf("%v, %v; want %v and no error", result, err, want)
				}
			}
			if err := q.Order(owner("a"), service("1")); !errors.Is(err, test.err) || *told != 1 {
				t.Errorf("whoever orders it again hears %v, and was told %d times; want once %v", err, *told, test.err)
			}
		})
	}
}

// TestMissingServiceIsRetried checks that a written Service is written again if it does not appear: it may have been
// deleted.
func TestMissingServiceIsRetried(t *testing.T) {
	api := &server{}
	q, told := started(t, api)
	now := testclock.NewFakePassiveClock(time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC))
	q.clock = now
	order := func() {
		t.Helper()
		if err := errors.Join(q.Order(owner("a"), service("1")), work(t, q)); err != nil {
			t.Fatal(err)
		}
	}
	order()
	order()
	if len(api.applied) != 1 {
		t.Errorf("a Service that a cache does not show yet was written %d times", len(api.applied))
	}
	now.SetTime(now.Now().Add(lag))
	order()
	if len(api.applied) != 2 {
		t.Errorf("a Service that does not show was written %d times, want it again", len(api.applied))
	}
	if *told != 0 {
		t.Errorf("told %d times of what a watch tells", *told)
	}
}
