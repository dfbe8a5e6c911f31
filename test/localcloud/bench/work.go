// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/modelberth/modelberth/test/localcloud/process"
)

// Work has processor times by program: of the control plane, and of the controller's replicas under its name.
type Work map[string]time.Duration

// all returns the sum.
func (w Work) all() time.Duration {
	var sum time.Duration
	for _, used := range w {
		sum += used
	}
	return sum
}

// since returns what was used since an earlier reading. A program that has started since then counts whole.
func (w Work) since(before Work) Work {
	out := make(Work, len(w))
	for name, used := range w {
		out[name] = used
		if was := before[name]; was <= used {
			out[name] -= was
		}
	}
	return out
}

// work returns the processor times of the running programs so far.
func (b *Bench) work() (Work, error) {
	recorded, err := process.Recorded(b.settings.Layout.Processes())
	if err != nil {
		return nil, err
	}
	out := Work{}
	for name, id := range recorded {
		if used, err := usedBy(id.PID); err == nil { // else it has ended
			out[name] = used
		}
	}
	if used, err := used(b.settings.Layout.Cgroup()); err != nil {
		return nil, err
	} else if used > 0 {
		out[release] = used
	}
	return out, nil
}

const (
	// idle is the share of a core below which all programs together count as idle: a cluster at rest renews its nodes'
	// Leases and conditions.
	idle = 0.5
	// idling is how long they must have been idle.
	idling = 5 * time.Second
)

// stage runs a measurement on an idle cluster and stores the work that it took. Without the wait, the cluster would
// still be ending the machines of the measurement before.
func (b *Bench) stage(ctx context.Context, to *Work, measure func() error) error {
	before, err := b.untilIdle(ctx)
	if err != nil {
		return err
	}
	failure := measure()
	after, err := b.work()
	*to = after.since(before)
	return errors.Join(failure, err)
}

// untilIdle waits until no program has much to do, and returns their work until then.
func (b *Bench) untilIdle(ctx context.Context) (Work, error) {
	before, err := b.work()
	if err != nil {
		return nil, err
	}
	sampled := time.Now()
	err = b.until(ctx, idling, func(context.Context) (missing string, err error) {
		elapsed := time.Since(sampled)
		if elapsed < idling/2 {
			return "measuring the load of the cluster", nil
		}
		now, err := b.work()
		if err != nil {
			return "", err
		}
		if used := now.since(before).all(); float64(used) > idle*float64(elapsed) {
			missing = "the cluster is busy"
		}
		before, sampled = now, time.Now()
		return missing, b.look()
	})
	return before, err
}

// programs returns the names of all programs of a measurement and others, those with the most work first.
func (w Work) programs(others ...Work) []string {
	all := Work{}
	for _, each := range append(others, w) {
		maps.Copy(all, each)
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Or(cmp.Compare(all[b], all[a]), cmp.Compare(a, b)) })
}

// rows returns the work of each program.
func (w Work) rows() []Row {
	var rows []Row
	for _, name := range w.programs() {
		rows = append(rows, Row{What: "processor time of " + name, Seen: seconds(w[name])})
	}
	return rows
}
