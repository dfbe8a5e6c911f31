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

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/lookup"
	"github.com/modelberth/modelberth/pkg/progress"
)

// hanging is a provisioner whose live reads never end.
type hanging struct{}

func (hanging) MachineCosts(context.Context) ([]capacity.MachineCost, error) { return nil, nil }

func (hanging) LiveMachineCosts(ctx context.Context) ([]capacity.MachineCost, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestHangingReadDoesNotHoldAllWorkers lets 32 workers reserve money while one read never ends.
func TestHangingReadDoesNotHoldAllWorkers(t *testing.T) {
	asked := []capacity.MachineCost{{Owner: capacity.Owner{UID: "uid"}, Machine: "m", HourlyPrice: 1}}
	money := ledger.New(hanging{})
	synctest.Test(t, func(t *testing.T) {
		var held, busy atomic.Int32
		for range 32 {
			held.Add(1)
			go func() {
				defer held.Add(-1)
				err := money.Reserve(context.Background(), now.Time, asked, ledger.Ceilings{Cluster: 10})
				if _, isBusy := errors.AsType[*lookup.BusyError](err); isBusy {
					busy.Add(1)
				}
				if wait, isWaiting := errors.AsType[*progress.WaitingError](classify(err)); err != nil && isWaiting && !wait.IsBrief {
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
}
