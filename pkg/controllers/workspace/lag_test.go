// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/ladder"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// live is a provisioner of whose machines the API server has these, and that notes who lets go of some.
type live struct {
	account
	names    []string
	released *int
}

func (l live) Held(context.Context, capacity.Owner, []capacity.Created) ([]string, error) {
	return l.names, nil
}

func (l live) Release(context.Context, capacity.Owner) ([]string, error) {
	*l.released++
	return nil, nil
}

// server is an API server that has these objects.
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

// A machine that the cache has not shown for long has vanished only where the API server says so, too: its Workspace
// would be refused what nobody has refused.
func TestLookAsksWhetherAMachineHasVanished(t *testing.T) {
	for name, held := range map[string][]string{"it is there": {"chat-aaaa"}, "it is gone": nil} {
		t.Run(name, func(t *testing.T) {
			r := New(Config{Provisioner: live{names: held}, Catalog: noCatalog{}, Clock: testclock.NewFakePassiveClock(now.Time)})
			s := newScope(workspaceObject())
			s.revision = accepted(1)
			s.begin(s.revision, 1, []string{"chat-aaaa"}, now.Add(-time.Minute))
			s.attempts[0].Claims = []v1beta1.AttemptClaim{{Name: "chat-aaaa", UID: "machine-1"}}
			got, seen, err := r.look(t.Context(), s, s.lastAttempt(), "chat-aaaa")
			if err != nil {
				t.Fatal(err)
			}
			if isThere := len(held) > 0; got.Stands != isThere || seen.GoneAt.IsZero() != isThere {
				t.Errorf("it stands: %v, gone at %v; want it to stand: %v", got.Stands, seen.GoneAt, isThere)
			}
		})
	}
}

// Machines of a plan that the cache does not show yet would be taken for those of another one, and let go.
func TestAwaitRevision(t *testing.T) {
	newest := appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat-newest"}}
	tests := []struct {
		reason  string
		shown   []appsv1.ControllerRevision
		objects []client.Object
		waits   bool
	}{
		{"it is shown", []appsv1.ControllerRevision{newest}, []client.Object{&newest}, false},
		{"it is yet to be shown", nil, []client.Object{&newest}, true},
		{"it is gone", nil, nil, false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			r := New(Config{Live: server(t, test.objects...)})
			s := newScope(workspaceObject())
			s.revision, s.revisions = accepted(1), test.shown
			s.begin(s.revision, 1, []string{"chat-aaaa"}, now.Time)
			s.attempts[0].Revision = newest.Name
			if err := r.awaitRevision(t.Context(), s, s.lastAttempt()); isWaiting(err) != test.waits || err != nil != test.waits {
				t.Errorf("error %v, want to wait: %v", err, test.waits)
			}
		})
	}
}

// A pass that has nothing to write down lets go of nothing before it knows that it began from the newest Workspace, whose
// status may tell of an attempt that holds the machines.
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
			if err := r.release(t.Context(), newScope(ws)); apierrors.IsConflict(err) != isOld || err != nil != isOld {
				t.Errorf("error %v, want a conflict: %v", err, isOld)
			}
			if (released == 0) != isOld {
				t.Errorf("machines were let go %d times", released)
			}
		})
	}
}

// Of two passes that have chosen the same offer after its cooldown, one asks first, and the other one keeps no money.
func TestTakeTurn(t *testing.T) {
	r := New(Config{Memory: &ladder.Memory{}, Catalog: noCatalog{}, Clock: testclock.NewFakePassiveClock(now.Time)})
	made := accepted(1)
	offer := r.offering(made.Plan.InstanceType, "", made.Plan.CapacityType, "")
	r.Memory.Learn(refusal.Attempt{
		Workspace: "former", Offering: offer, Started: now.Add(-2 * time.Hour), Ended: now.Add(-2 * time.Hour), Cause: refusal.NoCapacity,
		Scope: refusal.Scope{
			Breadth: refusal.SKU, Name: offer.InstanceType, Zone: refusal.Any, CapacityType: offer.CapacityType,
		}, Cooldown: time.Hour,
	})
	first, second := newScope(workspaceObject()), newScope(workspaceObject())
	second.ws.UID = "other"
	if err := r.takeTurn(first, made); err != nil {
		t.Fatal(err)
	}
	err := r.takeTurn(second, made)
	if _, waits := errors.AsType[*waitingError](err); !waits {
		t.Errorf("error %v, want the second one to wait", err)
	}
	if err := r.takeTurn(first, made); err != nil {
		t.Errorf("the first one waits for itself: %v", err)
	}
}
