// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
)

// An object may exist before the cache shows it, and its owner counts.
func TestCheckBehindTheCache(t *testing.T) {
	ws := owner("")
	for reason, test := range map[string]struct {
		there *corev1.Service
		fails bool
	}{
		"ours":            {service(ws), false},
		"somebody else's": {service(ws, func(s *corev1.Service) { s.OwnerReferences = nil }), true},
	} {
		t.Run(reason, func(t *testing.T) {
			c := newCluster(t, test.there)
			blind := interceptor.NewClient(c.server, interceptor.Funcs{
				Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
					return apierrors.NewNotFound(corev1.Resource("services"), key.Name)
				},
				// The fake client checks nothing in a dry run.
				Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
					return apierrors.NewAlreadyExists(corev1.Resource("services"), object.GetName())
				},
			})
			err := apply.New(blind, c.server, nil, clock.RealClock{}).Check(t.Context(), ws, service(ws))
			if taken, isTaken := errors.AsType[*apply.TakenError](err); isTaken != test.fails || !test.fails && err != nil {
				t.Errorf("error %v (taken: %v), want one: %v", err, taken, test.fails)
			}
		})
	}
}

func named(name string) *v1beta1.Workspace {
	ws := owner("")
	ws.Name, ws.UID = name, types.UID("uid-of-"+name)
	return ws
}

// serviceOf returns a Service that differs from another Workspace's only in the owner.
func serviceOf(ws *v1beta1.Workspace, change ...func(*corev1.Service)) *corev1.Service {
	out := service(ws, change...)
	out.Name, out.Spec.Selector = ws.Name, map[string]string{v1beta1.LabelWorkspace: ws.Name}
	return out
}

// TestCheckAsksOnce sends one request for objects with different owners, and another for every other difference.
func TestCheckAsksOnce(t *testing.T) {
	otherPort := func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }
	in := func(namespace string) []func(*corev1.Service) {
		return []func(*corev1.Service){func(s *corev1.Service) { s.Namespace = namespace }}
	}
	for _, test := range []struct {
		reason  string
		name    string
		first   []func(*corev1.Service)
		change  []func(*corev1.Service)
		after   time.Duration
		made    bool
		refused bool
		asked   bool
	}{
		{reason: "of another owner", name: "talk"},
		{reason: "one was made meanwhile: package admission counts those", name: "talk", made: true},
		{reason: "some seconds later", name: "talk", after: 9 * time.Second},
		{reason: "later", name: "talk", after: 11 * time.Second, asked: true},
		{reason: "with another port", name: "talk", change: []func(*corev1.Service){otherPort}, asked: true},
		{reason: "in another namespace, whose policies are others", name: "talk", change: in("team-b"), asked: true},
		{reason: "each in a namespace of its owner's name", name: "talk", first: in("chat"), change: in("talk"), asked: true},
		{reason: "with a longer name, which may be too long", name: "talking", asked: true},
		{reason: "with a name that is no label", name: "t.lk", asked: true},
		{reason: "the first was refused", name: "talk", refused: true, asked: true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			asked := 0
			c := newCluster(t)
			counting := interceptor.NewClient(c.server, interceptor.Funcs{
				Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
					asked++
					if test.refused {
						return apierrors.NewForbidden(corev1.Resource("services"), "chat", errors.New("exceeded quota"))
					}
					return nil
				},
			})
			now := testclock.NewFakeClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
			applier := apply.New(counting, c.server, nil, now)
			first := applier.Check(t.Context(), named("chat"), serviceOf(named("chat"), test.first...))
			if (first != nil) != test.refused || asked != 1 {
				t.Fatalf("the first was asked about %d times: %v", asked, first)
			}
			now.Step(test.after)
			if test.made {
				if _, err := applier.Apply(t.Context(), named("chat"), serviceOf(named("chat"))); err != nil {
					t.Fatal(err)
				}
			}
			ws := named(test.name)
			second := applier.Check(t.Context(), ws, serviceOf(ws, test.change...))
			if (second != nil) != test.refused || (asked == 2) != test.asked {
				t.Errorf("asked again: %v, want %v; error %v", asked == 2, test.asked, second)
			}
		})
	}
}

// TestCheckAsksTogether checks that callers during a request wait for its answer, and send their own if the first was
// refused.
func TestCheckAsksTogether(t *testing.T) {
	for _, test := range []struct {
		reason  string
		refused bool
		want    int32
	}{
		{"it would make them", false, 1},
		{"it would not make the first", true, 3},
	} {
		t.Run(test.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int32
				answer := make(chan struct{})
				c := newCluster(t)
				slow := interceptor.NewClient(c.server, interceptor.Funcs{
					Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
						asked.Add(1)
						<-answer
						if test.refused {
							return apierrors.NewForbidden(corev1.Resource("services"), object.GetName(), errors.New("exceeded quota"))
						}
						return nil
					},
				})
				applier := apply.New(slow, c.server, nil, clock.RealClock{})
				checked := make(chan error)
				for _, name := range []string{"chat", "talk", "said"} {
					go func() { checked <- applier.Check(t.Context(), named(name), serviceOf(named(name))) }()
				}
				synctest.Wait()
				if got := asked.Load(); got != 1 {
					t.Errorf("asked %d times at once, want once", got)
				}
				close(answer)
				for range 3 {
					if err := <-checked; (err != nil) != test.refused {
						t.Errorf("error %v, want one: %v", err, test.refused)
					}
				}
				if got := asked.Load(); got != test.want {
					t.Errorf("asked %d times, want %d", got, test.want)
				}
			})
		})
	}
}

// TestCheckBesideTheNextRequest: an answer is too old, and the next request is slow. It holds only its own caller. A
// busy API server once delayed the first NodeClaims of three Workspaces of 200 by twelve seconds.
func TestCheckBesideTheNextRequest(t *testing.T) {
	for _, test := range []struct {
		reason string
		after  time.Duration
		waits  bool
	}{
		{"just too old", 11 * time.Second, false},
		{"far too old", 31 * time.Second, true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answer := make(chan error)
				c := newCluster(t)
				slow := interceptor.NewClient(c.server, interceptor.Funcs{
					Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return <-answer },
				})
				applier := apply.New(slow, c.server, nil, clock.RealClock{})
				check := func(name string) <-chan error {
					out := make(chan error, 1)
					go func() { out <- applier.Check(t.Context(), named(name), serviceOf(named(name))) }()
					synctest.Wait()
					return out
				}
				first := check("chat")
				answer <- nil
				if err := <-first; err != nil {
					t.Fatal(err)
				}
				time.Sleep(test.after)
				asker, other := check("talk"), check("said")
				if waits := len(other) == 0; waits != test.waits {
					t.Errorf("the second caller waits: %v, want %v", waits, test.waits)
				}
				if len(asker) != 0 {
					t.Error("the first caller did not ask")
				}
				answer <- apierrors.NewForbidden(corev1.Resource("services"), "talk", errors.New("no Services any more"))
				if err := <-asker; !apierrors.IsForbidden(err) {
					t.Errorf("error %v, want a refusal", err)
				}
				if test.waits { // after a refusal, it asks on its own
					answer <- nil
				}
				if err := <-other; err != nil {
					t.Error(err)
				}
				if test.waits {
					return
				}
				third, fourth := check("told"), check("tale")
				if len(fourth) != 0 {
					t.Error("an earlier answer counts after a refusal")
				}
				answer <- nil
				if err := errors.Join(<-third, <-fourth); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
