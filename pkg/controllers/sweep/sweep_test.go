// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sweep_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/controllers/sweep"
)

// machines holds the existing machines, and the owners of released machines.
type machines struct {
	held     []capacity.MachineCost
	released chan types.UID
}

func (m machines) MachineCosts(context.Context) ([]capacity.MachineCost, error) { return m.held, nil }

func (m machines) Release(_ context.Context, owner capacity.Owner) ([]string, error) {
	m.released <- owner.UID
	return nil, nil
}

// strays are machines of another controller.
type strays struct {
	held    []capacity.MachineCost
	deleted *[]string
}

func (s strays) Strays(context.Context) ([]capacity.MachineCost, error) { return s.held, nil }
func (s strays) Delete(_ context.Context, name string) error {
	*s.deleted = append(*s.deleted, name)
	return nil
}

func workspace(uid types.UID) *v1beta1.Workspace {
	return &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat", UID: uid}}
}

// reader returns a reader of Workspaces that counts its reads. If fault is not nil, each read fails with it.
func reader(t *testing.T, gets *int, fault error, held ...client.Object) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(held...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			*gets++
			if fault != nil {
				return fault
			}
			return inner.Get(ctx, key, object, options...)
		},
	}).Build()
}

func TestSweep(t *testing.T) {
	forbidden := apierrors.NewForbidden(v1beta1.GroupVersion().WithResource("workspaces").GroupResource(), "chat", errors.New("no"))
	owner := capacity.Owner{Namespace: "team-a", Name: "chat", UID: "1"}
	tests := []struct {
		reason       string
		cached, live []client.Object
		fault        error
		owner        capacity.Owner
		released     []types.UID
		asked        int
		fails        bool
	}{
		{reason: "its Workspace is there", cached: []client.Object{workspace("1")}, owner: owner},
		{reason: "the cache does not show its Workspace yet", live: []client.Object{workspace("1")}, owner: owner, asked: 1},
		{reason: "its Workspace is gone", owner: owner, released: []types.UID{"1"}, asked: 1},
		{
			reason: "another Workspace has the name", cached: []client.Object{workspace("2")}, live: []client.Object{workspace("2")},
			owner: owner, released: []types.UID{"1"}, asked: 1,
		},
		{
			reason: "another one has the name in an old cache", cached: []client.Object{workspace("0")}, live: []client.Object{workspace("1")},
			owner: owner, asked: 1,
		},
		{reason: "nobody may look", fault: forbidden, owner: owner, asked: 1, fails: true},
		{reason: "it names nobody", owner: capacity.Owner{UID: "1"}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			cachedGets, liveGets := 0, 0
			held := machines{held: []capacity.MachineCost{{Owner: test.owner, Machine: "m"}, {Owner: test.owner, Machine: "n"}}, released: make(chan types.UID, 4)}
			sweeper := &sweep.Sweeper{
				Cached: reader(t, &cachedGets, nil, test.cached...), Live: reader(t, &liveGets, test.fault, test.live...), Machines: held,
			}
			if err := sweeper.Sweep(t.Context()); (err != nil) != test.fails {
				t.Fatalf("error %v, want one: %t", err, test.fails)
			}
			close(held.released)
			var released []types.UID
			for uid := range held.released {
				released = append(released, uid)
			}
			if diff := cmp.Diff(test.released, released); diff != "" {
				t.Errorf("released (-want +got):\n%s", diff)
			}
			if liveGets != test.asked {
				t.Errorf("the API server was asked %d times, want %d", liveGets, test.asked)
			}
		})
	}
}

// TestSweepReportsOnce: a release is reported once, although the deletion takes its time.
func TestSweepReportsOnce(t *testing.T) {
	gone := capacity.Owner{Namespace: "team-a", Name: "chat", UID: "1"}
	held := []capacity.MachineCost{{Owner: gone, Machine: "m", Leaving: true}, {Owner: gone, Machine: "n"}}
	gets, said := 0, 0
	read := reader(t, &gets, nil)
	sweeper := &sweep.Sweeper{Cached: read, Live: read, Machines: machines{held: held, released: make(chan types.UID, 3)}}
	ctx := log.IntoContext(t.Context(), funcr.New(func(string, string) { said++ }, funcr.Options{}))
	for range 3 {
		if err := sweeper.Sweep(ctx); err != nil {
			t.Fatal(err)
		}
		held[1].Leaving = true
	}
	if said != 1 {
		t.Errorf("said %d times that machines were released, want once", said)
	}
}

// TestSweepStrays covers machines of another controller, which name only their Workspace.
func TestSweepStrays(t *testing.T) {
	gets, deleted := 0, []string(nil)
	read := reader(t, &gets, nil, workspace("1"))
	named := func(name, machine string) capacity.MachineCost {
		return capacity.MachineCost{Owner: capacity.Owner{Namespace: "team-a", Name: name}, Machine: machine}
	}
	sweeper := &sweep.Sweeper{
		Cached: read, Live: read, Machines: machines{},
		Strays: strays{held: []capacity.MachineCost{named("chat", "kept"), named("gone", "swept")}, deleted: &deleted},
	}
	if err := sweeper.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"swept"}, deleted); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
}

// TestStart: the leader sweeps periodically, and no other replica does.
func TestStart(t *testing.T) {
	gets := 0
	clock := testclock.NewFakeClock(time.Unix(0, 0))
	held := machines{
		held:     []capacity.MachineCost{{Owner: capacity.Owner{Namespace: "team-a", Name: "chat", UID: "1"}, Machine: "m"}},
		released: make(chan types.UID, 1),
	}
	read := reader(t, &gets, nil)
	sweeper := &sweep.Sweeper{Cached: read, Live: read, Machines: held, Clock: clock}
	if !sweeper.NeedLeaderElection() {
		t.Error("every replica sweeps")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- sweeper.Start(ctx) }()
	for len(held.released) == 0 {
		clock.Step(time.Minute)
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
