// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Namespaces of the pods on the other nodes, and of the Workspaces after the end of a leader.
const (
	othersNamespace     = "bench-others"
	killedNamespace     = "bench-killed"
	terminatedNamespace = "bench-terminated"
)

const (
	// busy is the share of a core above which the controller counts as working.
	busy = 0.1
	// calm is how long it must not have worked to count as settled.
	calm = 10 * time.Second
)

// Scale are the settings of a benchmark of a large cluster.
type Scale struct {
	// Nodes is the number of nodes that belong to no Workspace, with a pod each.
	Nodes int
	// Rest is how long the controller is measured at rest.
	Rest time.Duration
}

// ScaleFigures are the measurements of a benchmark of a large cluster.
type ScaleFigures struct {
	Figures
	Scale
	// RestCPU and RestartCPU are the controller's processor times.
	RestCPU, RestartCPU time.Duration
	// Resting are its requests at rest, and RestMemory its memory then, in bytes.
	Resting    Tally
	RestMemory int64
	// Settled is how long a new leader works with everything in order.
	Settled time.Duration
	// Killed and Terminated are the ends of a leader.
	Killed, Terminated Handover
}

// Handover has two times since the end of a leader: until another replica had the Lease, and until it had bought the
// machine of a Workspace created at that moment.
type Handover struct{ Led, Worked time.Duration }

// RunScale measures many Workspaces in a cluster with many other nodes: at once, at rest, after a restart, and after the
// end of a leader. It returns its figures also if it breaks off.
func RunScale(ctx context.Context, settings Settings, scale Scale) (ScaleFigures, error) {
	b, err := open(settings)
	if err != nil {
		return ScaleFigures{}, err
	}
	defer func() { _ = b.log.Close() }()
	b.figures = Figures{Workspaces: settings.Workspaces, MachinesTake: settings.MachinesTake, Load: NewCourse(loadNamespace)}
	figures := ScaleFigures{Scale: scale}
	err = b.scale(ctx, &figures)
	figures.Figures = b.figures
	return figures, err
}

func (b *Bench) scale(ctx context.Context, figures *ScaleFigures) error {
	if err := b.others(ctx, figures.Nodes); err != nil {
		return fmt.Errorf("adding %d nodes: %w", figures.Nodes, err)
	}
	if err := b.slow(b.settings.MachinesTake); err != nil {
		return err
	}
	if err := b.load(ctx); err != nil {
		return fmt.Errorf("measuring %d Workspaces at once: %w", b.settings.Workspaces, err)
	}
	if err := b.rest(ctx, figures); err != nil {
		return fmt.Errorf("measuring the controller at rest: %w", err)
	}
	if err := b.restarted(ctx, figures); err != nil {
		return fmt.Errorf("measuring a restart of the controller: %w", err)
	}
	for _, end := range []struct {
		namespace string
		signal    unix.Signal
		to        *Handover
	}{{killedNamespace, unix.SIGKILL, &figures.Killed}, {terminatedNamespace, unix.SIGTERM, &figures.Terminated}} {
		var err error
		if *end.to, err = b.handOver(ctx, end.namespace, end.signal); err != nil {
			return fmt.Errorf("measuring the handover after %s to the leader: %w", unix.SignalName(end.signal), err)
		}
	}
	return nil
}

// rest measures the controller with all Workspaces Ready and nothing to do.
func (b *Bench) rest(ctx context.Context, figures *ScaleFigures) error {
	b.settings.Say("at rest for %s", figures.Rest)
	cgroup := b.settings.Layout.Cgroup()
	began := time.Now()
	before, err := used(cgroup)
	if err != nil {
		return err
	}
	err = b.until(ctx, looking, func(context.Context) (missing string, err error) {
		if time.Since(began) < figures.Rest {
			missing = "the controller rests"
		}
		return missing, b.look()
	})
	if err != nil {
		return err
	}
	after, err := used(cgroup)
	if err != nil {
		return err
	}
	figures.RestCPU, figures.Rest = after-before, time.Since(began)
	figures.Resting = Count(b.requests, controller, began, time.Now())
	figures.RestMemory, _, err = memory(cgroup)
	return err
}

// restarted replaces all replicas, and measures how long the new leader works.
func (b *Bench) restarted(ctx context.Context, figures *ScaleFigures) error {
	began := time.Now()
	if err := b.rollOut(ctx); err != nil {
		return err
	}
	var err error
	if figures.Settled, err = b.settle(ctx); err != nil {
		return err
	}
	if err := b.untilQuiet(ctx); err != nil {
		return err
	}
	b.figures.Restart = Count(b.requests, controller, began, time.Now())
	cgroup := b.settings.Layout.Cgroup()
	if figures.RestartCPU, err = used(cgroup); err != nil { // the replicas are new
		return err
	}
	b.figures.Held, _, err = memory(cgroup)
	return err
}

// settle waits until the controller is calm, and returns how long the leader had worked: until its last request or its
// last busy moment.
func (b *Bench) settle(ctx context.Context) (time.Duration, error) {
	leader, err := b.leader(ctx)
	if err != nil {
		return 0, err
	}
	last, sampled := leader.since, time.Now()
	cgroup := b.settings.Layout.Cgroup()
	before, err := used(cgroup)
	if err != nil {
		return 0, err
	}
	err = b.until(ctx, looking, func(context.Context) (missing string, err error) {
		if err := b.look(); err != nil {
			return "", err
		}
		now, err := used(cgroup)
		if err != nil {
			return "", err
		}
		elapsed := time.Since(sampled)
		if elapsed >= looking/2 {
			if float64(now-before) > busy*float64(elapsed) {
				last = time.Now()
			}
			before, sampled = now, time.Now()
		}
		if at := lastWork(b.requests, leader.since); at.After(last) {
			last = at
		}
		if time.Since(last) < calm {
			missing = "the controller works"
		}
		return missing, nil
	})
	return last.Sub(leader.since), err
}

// lastWork returns the time of the last request that neither renews a Lease nor watches, or since.
func lastWork(requests []Request, since time.Time) time.Time {
	for i := len(requests) - 1; i >= 0 && requests[i].Done.After(since); i-- {
		if r := requests[i]; r.Object.Resource != "leases" && r.Verb != "watch" {
			return r.Done
		}
	}
	return since
}

// handOver ends the leader by a signal, creates a Workspace, and measures how long another replica takes.
func (b *Bench) handOver(ctx context.Context, namespace string, signal unix.Signal) (Handover, error) {
	b.settings.Say("ending the leader by %s", signal)
	former, err := b.leader(ctx)
	if err != nil {
		return Handover{}, err
	}
	process, err := processOf(b.settings.Layout.Cgroup(), former)
	if err != nil {
		return Handover{}, err
	}
	began := time.Now()
	if err := process.Signal(signal); err != nil {
		return Handover{}, err
	}
	course, err := b.apply(ctx, namespace, 1)
	if err != nil {
		return Handover{}, err
	}
	if err := b.await(ctx, "NodeClaims", course.Claimed, 1); err != nil {
		return Handover{}, err
	}
	next, err := b.leader(ctx)
	if err != nil {
		return Handover{}, err
	}
	if next.holder == former.holder {
		return Handover{}, fmt.Errorf("%s still leads", former.holder)
	}
	_, worked := span(course.Claimed)
	out := Handover{Led: next.since.Sub(began), Worked: worked.Sub(began)}
	if err := b.await(ctx, "ready", course.Ready, 1); err != nil {
		return out, err
	}
	if err := b.untilLed(ctx, former); err != nil {
		return out, err
	}
	_, err = b.settle(ctx)
	return out, err
}
