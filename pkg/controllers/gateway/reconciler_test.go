// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
)

// story has one set and its Reconciler. Every write fails with refused, if that is set.
type story struct {
	*Reconciler

	set     *v1beta1.InferenceSet
	kube    client.Client
	clock   *testclock.FakeClock
	events  *record.FakeRecorder
	refused error
}

func (s *story) Apply(context.Context, client.Object, client.Object) (bool, error) {
	return false, s.refused
}

func tell(t *testing.T, name string) *story {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1beta1.AddToScheme, AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s := &story{
		set:   &v1beta1.InferenceSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: "1"}},
		clock: testclock.NewFakeClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)), events: record.NewFakeRecorder(9),
	}
	s.kube = fake.NewClientBuilder().WithScheme(scheme).WithObjects(s.set).Build()
	s.Reconciler = New(Config{Client: s.kube, Applier: s, Events: s.events, Clock: s.clock})
	return s
}

// pass runs a pass, and returns its events.
func (s *story) pass(t *testing.T) (events []string, result ctrl.Result, err error) {
	t.Helper()
	result, err = s.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.set)})
	for len(s.events.Events) > 0 {
		events = append(events, <-s.events.Events)
	}
	return events, result, err
}

// TestLongName: a Service has at most 63 characters, and a set may have more. The set is reported, and nothing is
// written.
func TestLongName(t *testing.T) {
	s := tell(t, strings.Repeat("x", 46))
	want := []string{"Warning GatewayObjectsFailed the Service " + s.set.Name + "-inferencepool-epp would have more than 63 characters: " +
		"give the InferenceSet a name of at most 45"}
	for _, step := range []struct {
		after time.Duration
		want  []string
		next  time.Duration
	}{{0, want, repeat}, {10 * time.Minute, nil, 20 * time.Minute}, {20 * time.Minute, want, repeat}} {
		s.clock.Step(step.after)
		events, result, err := s.pass(t)
		if diff := cmp.Diff(step.want, events); diff != "" || err != nil || result.RequeueAfter != step.next {
			t.Errorf("after %s: %v, %v; want the next report in %s (-want +got):\n%s", step.after, result, err, step.next, diff)
		}
	}
}

// TestRefusedObjects: users see in the events of the set why the API server refuses an object. An outage is no refusal.
func TestRefusedObjects(t *testing.T) {
	services := schema.GroupResource{Resource: "services"}
	denied := errors.New("exceeded quota: count/services=0")
	applying := func(err error) error { return fmt.Errorf("applying Service team-a/chat-inferencepool-epp: %w", err) }
	tests := []struct {
		reason  string
		refused error
		want    string
	}{
		{"a quota or a policy", applying(apierrors.NewForbidden(services, "chat-inferencepool-epp", denied)), "exceeded quota"},
		{
			"an invalid object",
			applying(apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "chat-inferencepool-epp", nil)), `Service "chat-inferencepool-epp" is invalid`,
		},
		{"a webhook", applying(apierrors.NewBadRequest("admission webhook denied the request")), "admission webhook denied the request"},
		{"a taken name", &apply.TakenError{Kind: "Service", Namespace: "team-a", Name: "chat-inferencepool-epp"}, "has another owner"},
		{"an outage", applying(apierrors.NewInternalError(errors.New("etcd is down"))), ""},
		{"an old object", &apply.TerminatingError{Kind: "Service"}, ""},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			s := tell(t, "chat")
			s.refused = test.refused
			events, result, err := s.pass(t)
			if test.want == "" {
				if len(events) > 0 || err == nil && result.RequeueAfter != leaving {
					t.Errorf("%v %v %v, want another try without an event", events, result, err)
				}
				return
			}
			isNamed := len(events) == 1 && strings.HasPrefix(events[0], "Warning GatewayObjectsFailed ") &&
				strings.Contains(events[0], test.want) && strings.Contains(events[0], "Service team-a/chat-inferencepool-epp")
			if !isNamed || err != nil || result.RequeueAfter != taken {
				t.Errorf("%q %v %v, want an event with the object and %q, and another try", events, result, err, test.want)
			}
		})
	}
}

// TestReportsLastAsLongAsTheirProblem: the API server deletes an event after an hour, so a lasting problem is reported
// again before that, and a problem that comes back at once.
func TestReportsLastAsLongAsTheirProblem(t *testing.T) {
	s := tell(t, "chat")
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "x", errors.New("exceeded quota"))
	s.refused = denied
	count := func(passes int) (reports int) {
		for range passes {
			events, result, err := s.pass(t)
			if err != nil {
				t.Fatal(err)
			}
			reports += len(events)
			s.clock.Step(result.RequeueAfter)
		}
		return reports
	}
	if got := count(90); got != 3 {
		t.Errorf("%d reports in 90 minutes, want one each 30 minutes", got)
	}
	if got := count(1); got != 1 {
		t.Errorf("%d reports after another 30 minutes, want 1", got)
	}
	for used := range 20 { // the text differs in each pass
		s.refused = apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "x", fmt.Errorf("exceeded quota, used %d", used))
		if got := count(1); got > 0 {
			t.Errorf("%d reports of the same problem with another text, want 0", got)
		}
	}
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "x", nil)
	s.refused = invalid
	if got := count(2); got != 1 {
		t.Errorf("%d reports of another problem in two passes, want 1", got)
	}
	for range 4 { // two problems take turns
		s.refused = denied
		if got := count(1); got > 0 {
			t.Errorf("%d reports of a problem that was reported a moment ago, want 0", got)
		}
		s.refused = invalid
		if got := count(1); got > 0 {
			t.Errorf("%d reports of a problem that was reported a moment ago, want 0", got)
		}
	}
	s.refused = nil
	pool := &inferencev1.InferencePool{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat-inferencepool"}}
	if err := s.kube.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if got := count(1); got > 0 {
		t.Errorf("%d reports without a problem", got)
	}
	s.refused = denied
	if got := count(2); got != 1 {
		t.Errorf("%d reports of a problem that came back, want 1", got)
	}
	remove := func() {
		if err := s.kube.Delete(t.Context(), s.set); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	s.set.UID, s.set.ResourceVersion = "2", ""
	if err := s.kube.Create(t.Context(), s.set); err != nil {
		t.Fatal(err)
	}
	if got := count(1); got != 1 {
		t.Errorf("%d reports about a new set of the same name, want 1", got)
	}
	remove()
	if got := count(1); got > 0 || len(s.reported) > 0 {
		t.Errorf("%d reports about a deleted set, and %d are remembered", got, len(s.reported))
	}
}
