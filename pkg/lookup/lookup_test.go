// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package lookup_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelberth/modelberth/pkg/lookup"
)

// TestHangingReadHoldsOneWorker: 32 workers need a source that never answers.
func TestHangingReadHoldsOneWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, began := &lookup.Reads{}, time.Now()
		hang := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		var mu sync.Mutex
		var busy, failed int
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				_, err := reads.Do(t.Context(), "node classes", time.Now(), hang)
				_, isBusy := errors.AsType[*lookup.BusyError](err)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case isBusy:
					busy++
				case errors.Is(err, context.DeadlineExceeded):
					failed++
				}
			})
		}
		time.Sleep(time.Second)
		mu.Lock()
		if busy != 31 || failed != 0 {
			t.Errorf("after a second %d are free and %d have failed, want 31 and none", busy, failed)
		}
		mu.Unlock()
		if _, err := reads.Do(t.Context(), "node classes", time.Now(), hang); time.Since(began) > time.Second || err == nil {
			t.Errorf("another one was held for %s: %v", time.Since(began)-time.Second, err)
		}
		if isOurs, err := reads.Do(t.Context(), "pods", time.Now(), func(context.Context) error { return nil }); !isOurs || err != nil {
			t.Errorf("another source: %v, %v", isOurs, err)
		}
		all.Wait()
		if failed != 1 || time.Since(began) > 15*time.Second {
			t.Errorf("%d failed after %s, want the one that read", failed, time.Since(began))
		}
		if _, err := reads.Do(t.Context(), "node classes", time.Now(), hang); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 15*time.Second {
			t.Errorf("the next one asks again at once: %v after %s", err, time.Since(began))
		}
	})
}

func TestReads(t *testing.T) {
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		reads, count := &lookup.Reads{}, 0
		read := func(err error) error {
			_, got := reads.Do(t.Context(), "x", time.Now(), func(context.Context) error {
				count++
				return err
			})
			return got
		}
		if err := read(broken); !errors.Is(err, broken) || count != 1 {
			t.Fatalf("got %v after %d reads", err, count)
		}
		if err := read(nil); !errors.Is(err, broken) || count != 1 {
			t.Errorf("a failure is forgotten at once: %v after %d reads", err, count)
		}
		time.Sleep(6 * time.Second)
		if err := read(nil); err != nil || count != 2 {
			t.Errorf("a failure counts for ever: %v after %d reads", err, count)
		}
		if err := read(nil); err != nil || count != 3 {
			t.Errorf("an answer is kept, which is not its job: %v after %d reads", err, count)
		}
	})
}

// A worker that waits for another worker's read continues when the read ends, or when its own context ends.
func TestWaitingForAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := &lookup.Reads{}
		go func() {
			_, _ = reads.Do(context.Background(), "x", time.Now(), func(context.Context) error {
				time.Sleep(100 * time.Millisecond)
				return nil
			})
		}()
		synctest.Wait()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := reads.Do(gone, "x", time.Now(), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that is gone waits: %v", err)
		}
		began := time.Now()
		if isOurs, err := reads.Do(t.Context(), "x", time.Now(), nil); isOurs || err != nil || time.Since(began) != 100*time.Millisecond {
			t.Errorf("ours %v, %v after %s; want the other one's answer after 100 ms", isOurs, err, time.Since(began))
		}
	})
}
