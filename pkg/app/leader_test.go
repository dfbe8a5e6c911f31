// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// TestOnceElected checks that the steps run in order once the manager runs the leader's tasks, and that none runs after
// a failed one.
func TestOnceElected(t *testing.T) {
	var taken []string
	broken := errors.New("broken")
	step := func(name string, err error) func(context.Context) error {
		return func(context.Context) error {
			taken = append(taken, name)
			return err
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		reason string
		ctx    context.Context
		second error
		want   []string
		err    error
	}{
		{"all of them", t.Context(), nil, []string{"first", "second", "third"}, nil},
		{"until one fails", t.Context(), broken, []string{"first", "second"}, broken},
		{"until the process is to end, which is no failure", ended, broken, []string{"first"}, nil},
	} {
		t.Run(test.reason, func(t *testing.T) {
			taken = nil
			mgr := &runner{}
			if err := onceElected(mgr, step("first", nil), step("second", test.second), step("third", nil)); err != nil || len(mgr.runs) != 1 {
				t.Fatalf("%d things run, error %v; want one", len(mgr.runs), err)
			}
			if len(taken) > 0 {
				t.Errorf("taken before this replica leads: %q", taken)
			}
			if replica, ok := mgr.runs[0].(manager.LeaderElectionRunnable); ok && !replica.NeedLeaderElection() {
				t.Error("it runs in every replica")
			}
			if err := mgr.runs[0].Start(test.ctx); !errors.Is(err, test.err) || !slices.Equal(taken, test.want) {
				t.Errorf("taken: %q, error %v; want %q and %v", taken, err, test.want, test.err)
			}
		})
	}
}

// TestIndexesAreMadeLater keeps requests for indexes until there is a cache.
func TestIndexesAreMadeLater(t *testing.T) {
	asked := &indexes{}
	for _, field := range []string{"colour", "size"} {
		if err := asked.IndexField(t.Context(), &corev1.Pod{}, field, valueOf(field)); err != nil {
			t.Fatal(err)
		}
	}
	made := newIndexer()
	if err := asked.make(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	blue := &corev1.Pod{}
	blue.Labels = map[string]string{"colour": "blue"}
	if len(made.fields) != 2 || made.fields["size"] == nil || !slices.Equal(made.fields["colour"](blue), []string{"blue"}) {
		t.Errorf("indexes made: %d, want those that were asked for", len(made.fields))
	}
	if err := asked.make(t.Context(), unable{}); err == nil || err.Error() != "indexing *v1.Pod by colour: no such kind" {
		t.Errorf("error %q, want the index and why it cannot be made", err)
	}
}

// TestIndexesHaveADeadline checks that a leader does not wait forever for missing caches.
func TestIndexesHaveADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, begun := &indexes{}, time.Now()
		if err := asked.IndexField(t.Context(), &corev1.Pod{}, "size", valueOf("size")); err != nil {
			t.Fatal(err)
		}
		err := asked.make(t.Context(), unable{})
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took != syncDeadline {
			t.Errorf("error %v after %s, want it to give up after %s", err, took, syncDeadline)
		}
	})
}

// unable fails to make the first index. It makes the other index only when it is stopped.
type unable struct{}

// IndexField implements client.FieldIndexer.
func (unable) IndexField(ctx context.Context, _ client.Object, field string, _ client.IndexerFunc) error {
	if field == "colour" {
		return errors.New("no such kind")
	}
	<-ctx.Done()
	return ctx.Err()
}
