// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

const (
	// applying is how many objects are sent at a time.
	applying = 16
	// looking is the pause between two reads of the log, and asking the pause between two requests for facts outside
	// the log.
	looking = 500 * time.Millisecond
	asking  = 2 * time.Second
	// quiet is how long the controller must not have asked for anything to count as done: it writes the figures of an
	// engine 30 s after the first answer, and delays other writes of no urgency by 10 s.
	quiet = 40 * time.Second
	// patience bounds one step, and patienceEach is every Workspace's addition to it.
	patience     = 5 * time.Minute
	patienceEach = time.Second
	// telling is the pause between two reports of progress.
	telling = 10 * time.Second
)

// apply creates Workspaces in a new namespace, and returns their course.
func (b *Bench) apply(ctx context.Context, namespace string, n int) (*Course, error) {
	course := b.course(namespace)
	if err := b.kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return course, fmt.Errorf("making namespace %s: %w", namespace, err)
	}
	return course, b.applyTo(ctx, namespace, n, func(string) {})
}

// applyTo creates Workspaces in a namespace, and calls a function for each.
func (b *Bench) applyTo(ctx context.Context, namespace string, n int, exists func(name string)) error {
	return inParallel(n, func(i int) error {
		ws := workspace(namespace, i)
		ws.Object["inference"] = map[string]any{"preset": map[string]any{"name": b.settings.Model}}
		if err := b.kube.Create(ctx, ws); err != nil {
			return fmt.Errorf("applying Workspace %s: %w", ws.GetName(), err)
		}
		exists(ws.GetName())
		return nil
	})
}

// workspace returns the i-th Workspace to apply.
func workspace(namespace string, i int) *unstructured.Unstructured {
	ws := &unstructured.Unstructured{}
	ws.SetGroupVersionKind(v1beta1.GroupVersion().WithKind("Workspace"))
	ws.SetNamespace(namespace)
	ws.SetName(fmt.Sprintf("ws-%04d", i))
	return ws
}

// course starts a course; each read of the log continues it.
func (b *Bench) course(namespace string) *Course {
	course := NewCourse(namespace)
	b.courses[namespace] = course
	return course
}

// inParallel does n things, a few at a time.
func inParallel(n int, do func(i int) error) error {
	errs := make([]error, n)
	var running sync.WaitGroup
	turns := make(chan struct{}, applying)
	for i := range n {
		turns <- struct{}{}
		running.Go(func() {
			errs[i] = do(i)
			<-turns
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// look reads on in the log.
func (b *Bench) look() error {
	requests, err := b.log.Read()
	if err != nil {
		return err
	}
	for _, course := range b.courses {
		course.Add(requests)
	}
	for _, r := range requests {
		if r.User.Username == controller {
			r.Sent = Sent{}
			b.requests = append(b.requests, r)
		}
	}
	return nil
}

// await reads the log until n Workspaces have come so far.
func (b *Bench) await(ctx context.Context, what string, times Times, n int) error {
	told := time.Now()
	return b.until(ctx, looking, func(context.Context) (missing string, err error) {
		if err := b.look(); err != nil || len(times) >= n {
			return "", err
		}
		missing = fmt.Sprintf("%d of %d: %s", len(times), n, what)
		if time.Since(told) > telling {
			b.settings.Say("  %s", missing)
			told = time.Now()
		}
		return missing, nil
	})
}

// untilQuiet reads the log until the controller has not asked for anything for a
// while, but for its leader's Lease.
func (b *Bench) untilQuiet(ctx context.Context) error {
	last, since := -1, time.Now()
	return b.until(ctx, looking, func(context.Context) (missing string, err error) {
		if err := b.look(); err != nil {
			return "", err
		}
		tally := Count(b.requests, controller, time.Time{}, time.Now())
		if sum := tally.Writes + tally.Reads + tally.Events; sum != last {
			last, since = sum, time.Now()
		}
		if time.Since(since) < quiet {
			return "the controller is not quiet", nil
		}
		return "", nil
	})
}

// until waits until nothing is missing, for as long as so many Workspaces may take.
func (b *Bench) until(ctx context.Context, every time.Duration, look func(context.Context) (missing string, err error)) error {
	limit := patience + time.Duration(b.settings.Workspaces)*patienceEach
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		missing, err := look(ctx)
		if err != nil || missing == "" {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s: %s: %w", limit, missing, ctx.Err())
		case <-ticker.C:
		}
	}
}

// remove deletes the n Workspaces of a namespace and waits until their machines are gone.
func (b *Bench) remove(ctx context.Context, namespace string, n int) error {
	b.settings.Say("  removing them")
	err := inParallel(n, func(i int) error {
		if err := b.kube.Delete(ctx, workspace(namespace, i)); err != nil {
			return fmt.Errorf("deleting a Workspace: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.untilNoClaims(ctx)
}

func (b *Bench) untilNoClaims(ctx context.Context) error {
	return b.until(ctx, asking, func(ctx context.Context) (missing string, err error) {
		claims := &metav1.PartialObjectMetadataList{}
		claims.SetGroupVersionKind(nodeClaims())
		if err := b.kube.List(ctx, claims); err != nil {
			return "", fmt.Errorf("listing NodeClaims: %w", err)
		}
		if len(claims.Items) > 0 {
			missing = fmt.Sprintf("%d NodeClaims are still there", len(claims.Items))
		}
		return missing, b.look()
	})
}

// restart counts the controller's writes on a start with everything in order.
func (b *Bench) restart(ctx context.Context) error {
	began := time.Now()
	if err := b.rollOut(ctx); err != nil {
		return err
	}
	if err := b.untilQuiet(ctx); err != nil {
		return err
	}
	b.figures.Restart = Count(b.requests, controller, began, time.Now())
	var err error
	b.figures.Held, _, err = memory(b.settings.Layout.Cgroup())
	return err
}

// rollOut replaces all replicas of the controller, and waits until a new one leads.
func (b *Bench) rollOut(ctx context.Context) error {
	b.settings.Say("restarting the controller")
	before, err := b.leader(ctx)
	if err != nil {
		return err
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: release, Namespace: systemNamespace}}
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"bench/restarted":%q}}}}}`, time.Now().Format(time.RFC3339))
	if err := b.kube.Patch(ctx, deployment, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return fmt.Errorf("restarting the controller: %w", err)
	}
	return b.untilLed(ctx, before)
}

// untilLed waits until all replicas run and another than the former one leads.
func (b *Bench) untilLed(ctx context.Context, former leadership) error {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: release, Namespace: systemNamespace}}
	return b.until(ctx, asking, func(ctx context.Context) (missing string, err error) {
		if err := b.kube.Get(ctx, client.ObjectKeyFromObject(deployment), deployment); err != nil {
			return "", fmt.Errorf("reading the controller's Deployment: %w", err)
		}
		if isRollingOut(deployment) {
			return "the controller's Deployment is rolling out", nil
		}
		after, err := b.leader(ctx)
		if after.holder == former.holder || after.holder == "" {
			missing = "there is no new leader"
		}
		return missing, err
	})
}

func isRollingOut(d *appsv1.Deployment) bool {
	want := *d.Spec.Replicas
	return d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < want || d.Status.AvailableReplicas < want || d.Status.Replicas > want
}

// leadership is the holder of the controller's Lease, the name of its pod and an ID, since a moment.
type leadership struct {
	holder string
	since  time.Time
}

// leader returns the acting replica.
func (b *Bench) leader(ctx context.Context) (leadership, error) {
	leases := &coordinationv1.LeaseList{}
	if err := b.kube.List(ctx, leases, client.InNamespace(systemNamespace)); err != nil {
		return leadership{}, fmt.Errorf("reading the leader's Lease: %w", err)
	}
	for _, lease := range leases.Items {
		if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" && lease.Spec.AcquireTime != nil {
			return leadership{*holder, lease.Spec.AcquireTime.Time}, nil
		}
	}
	return leadership{}, nil
}
