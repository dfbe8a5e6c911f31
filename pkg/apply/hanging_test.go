// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/lookup"
)

// TestSlowWebhookDoesNotHoldAllWorkers has 32 workers in a dry run, and a silent webhook.
func TestSlowWebhookDoesNotHoldAllWorkers(t *testing.T) {
	for _, test := range []struct {
		reason string
		of     func(worker int) shape
		held   int32
	}{
		{"objects that are alike", func(int) shape { return shape{kind: "StatefulSet", namespace: "team-a"} }, 1},
		{"objects that differ", func(worker int) shape {
			return shape{kind: "StatefulSet", namespace: fmt.Sprint("team-", worker)}
		}, mostAsking},
	} {
		t.Run(test.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				known := newAccepted(clock.RealClock{})
				var held, busy atomic.Int32
				for worker := range 32 {
					held.Add(1)
					go func() {
						defer held.Add(-1)
						err := known.ask(context.Background(), test.of(worker), func(ctx context.Context) error {
							<-ctx.Done()
							return ctx.Err()
						})
						if _, isBusy := errors.AsType[*lookup.BusyError](err); isBusy {
							busy.Add(1)
						}
					}()
				}
				time.Sleep(2 * time.Second)
				if held.Load() != test.held || busy.Load() != 32-test.held {
					t.Errorf("%d workers are held and %d are told to come back, want %d and the others", held.Load(), busy.Load(), test.held)
				}
				time.Sleep(time.Minute)
				if held.Load() != 0 {
					t.Errorf("%d workers are held for good", held.Load())
				}
			})
		})
	}
}
