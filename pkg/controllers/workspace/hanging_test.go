// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/lookup"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
)

// hanging is an API server that does not answer about node classes and machines.
type hanging struct {
	Provisioner
}

func (hanging) Bills(context.Context) ([]capacity.Bill, error) { return nil, nil }

func (hanging) Class(ctx context.Context, _ v1beta1.NodeClassReference) (refusal.ClassState, string, error) {
	<-ctx.Done()
	return "", "", ctx.Err()
}

func (hanging) LiveBills(ctx context.Context) ([]capacity.Bill, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestHangingReadDoesNotHoldAllWorkers has 32 workers look before they buy, while one read never ends.
func TestHangingReadDoesNotHoldAllWorkers(t *testing.T) {
	node := someNode("system", corev1.ConditionTrue, nil)
	books := hanging{}
	asked := []capacity.Bill{{Owner: capacity.Owner{UID: "uid"}, Machine: "m", HourlyPrice: 1}}
	for _, test := range []struct {
		reason string
		look   func(context.Context, *Reconciler, int) error
	}{
		{"at the node class", func(ctx context.Context, r *Reconciler, worker int) error {
			return r.checkPrepared(ctx, &revision{Revision: render.Revision{Plan: planner.Plan{DiskGiB: worker}}})
		}},
		{"at what machines cost", func(ctx context.Context, r *Reconciler, _ int) error {
			return r.Ledger.Reserve(ctx, now.Time, asked)
		}},
	} {
		t.Run(test.reason, func(t *testing.T) {
			at := site{nodes: []client.Object{node}, unchecked: true}
			r := at.begin(t, testclock.NewFakePassiveClock(now.Time))
			r.Provisioner, r.Ledger = books, ledger.New(ledger.Ceilings{Cluster: 10}, books)
			synctest.Test(t, func(t *testing.T) {
				var held, busy atomic.Int32
				for worker := range 32 {
					held.Add(1)
					go func() {
						defer held.Add(-1)
						err := test.look(context.Background(), r, worker)
						if _, isBusy := errors.AsType[*lookup.BusyError](err); isBusy {
							busy.Add(1)
						}
						if wait, isWaiting := errors.AsType[*waitingError](classify(err)); err != nil && isWaiting && !wait.isBrief {
							t.Errorf("waits for somebody: %v", err)
						}
					}()
				}
				time.Sleep(time.Second)
				if held.Load() != 1 || busy.Load() != 31 {
					t.Errorf("%d workers are held and %d come back soon, want 1 and 31", held.Load(), busy.Load())
				}
				time.Sleep(time.Minute)
				if held.Load() != 0 {
					t.Errorf("%d workers are held for good", held.Load())
				}
			})
		})
	}
}
