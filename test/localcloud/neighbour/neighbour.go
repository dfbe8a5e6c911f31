// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package neighbour measures how a request for a GPU machine affects other pods of the cluster, on a local cloud with
// the real Karpenter. It measures the wait of an ordinary pod for an ordinary node while the machine is on its way, and
// the remaining life of an empty node. The requests are in shapes.yaml. The controller does not run, and this package
// must not know it.
package neighbour

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/process"
)

// The NodePools of the neighbours: of the waiting pod, and of the emptying node.
const (
	waitingPool = "neighbour"
	emptiedPool = "emptied"
)

const (
	// looking is how often the cluster is asked, and so how exact a time is.
	looking = 50 * time.Millisecond
	// patience bounds one wait: a machine takes a minute, and its pod a little more.
	patience = 3 * time.Minute
)

// Settings of a measurement.
type Settings struct {
	// Layout belongs to a running cloud with nothing else on it.
	Layout layout.Layout
	// Rounds is the number of measurements of each shape, and Matching selects the shapes by name.
	Rounds   int
	Matching *regexp.Regexp
	// Say reports the progress.
	Say func(format string, args ...any)
}

// bench is one measurement.
type bench struct {
	settings Settings
	kube     client.Client
}

// Run measures, and returns its figures also if it breaks off.
func Run(ctx context.Context, settings Settings) (Figures, error) {
	config, err := clientcmd.BuildConfigFromFlags("", settings.Layout.Kubeconfig())
	if err != nil {
		return Figures{}, fmt.Errorf("reading the access to the cluster: %w", err)
	}
	config.QPS = -1
	kube, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return Figures{}, fmt.Errorf("connecting to the cluster: %w", err)
	}
	scene, err := Load(settings.Matching)
	if err != nil {
		return Figures{}, err
	}
	b := &bench{settings: settings, kube: kube}
	return b.run(ctx, scene)
}

func (b *bench) run(ctx context.Context, scene Scene) (Figures, error) {
	var figures Figures
	for i := range scene.Neighbours {
		if err := b.kube.Create(ctx, &scene.Neighbours[i]); err != nil {
			return figures, fmt.Errorf("making NodePool %s: %w", scene.Neighbours[i].GetName(), err)
		}
	}
	// The first round is slow for reasons of its own.
	if _, err := b.round(ctx, &scene.Shapes[0], false); err != nil {
		return figures, fmt.Errorf("warming up: %w", err)
	}
	for i := range scene.Shapes {
		shape := &scene.Shapes[i]
		b.settings.Say("%s", shape.Name)
		course := Course{Shape: shape.Name}
		for n := range b.settings.Rounds {
			// A removal takes half a minute on its own, so one round measures it.
			times, err := b.round(ctx, shape, n == b.settings.Rounds-1)
			if err != nil {
				return figures, fmt.Errorf("measuring %q: %w", shape.Name, err)
			}
			b.settings.Say("  %s", times)
			course.Rounds = append(course.Rounds, times)
		}
		figures.Courses = append(figures.Courses, course)
	}
	return figures, nil
}

// round measures once, from the request for a GPU machine on.
func (b *bench) round(ctx context.Context, shape *Shape, untilRemoved bool) (Times, error) {
	var times Times
	if untilRemoved {
		if err := b.occupy(ctx); err != nil {
			return times, err
		}
	}
	err := b.ask(ctx, shape)
	if err == nil {
		times, err = b.watch(ctx, untilRemoved)
	}
	return times, errors.Join(err, b.clear(ctx, shape))
}

// occupy makes a node with a pod on it.
func (b *bench) occupy(ctx context.Context) error {
	return b.until(ctx, "a pod on the node that is to become empty", func(ctx context.Context) (bool, error) {
		return b.runs(ctx, emptiedPool)
	})
}

// ask asks for the GPU machine, and returns when Karpenter has a claim for it.
func (b *bench) ask(ctx context.Context, shape *Shape) error {
	file := b.settings.Layout.Script()
	if shape.Cloud == nil {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clearing the cloud's script: %w", err)
		}
		return nil
	}
	if err := os.WriteFile(file, shape.Cloud, 0o600); err != nil {
		return fmt.Errorf("setting the cloud's script: %w", err)
	}
	for i := range shape.Objects {
		if err := b.kube.Create(ctx, shape.Objects[i].DeepCopy()); err != nil {
			return fmt.Errorf("requesting a GPU machine: %w", err)
		}
	}
	return b.until(ctx, "a NodeClaim for the GPU machine", func(ctx context.Context) (bool, error) {
		claims, err := b.claims(ctx)
		for i := range claims {
			if pool := claims[i].Labels[karpv1.NodePoolLabelKey]; pool != waitingPool && pool != emptiedPool {
				return true, nil
			}
		}
		return false, err
	})
}

// watch has a pod wait for a node, and a node become empty, and takes the times.
func (b *bench) watch(ctx context.Context, untilRemoved bool) (Times, error) {
	var times Times
	began := time.Now()
	if untilRemoved {
		err := b.kube.Delete(ctx, podFor(emptiedPool), client.GracePeriodSeconds(0))
		if client.IgnoreNotFound(err) != nil {
			return times, fmt.Errorf("emptying a node: %w", err)
		}
	}
	err := b.until(ctx, "a node for the neighbour's pod", func(ctx context.Context) (bool, error) {
		claims, err := b.claims(ctx)
		if err != nil {
			return false, err
		}
		now := time.Since(began)
		waiting, emptied := of(claims, waitingPool), of(claims, emptiedPool)
		if times.Claimed == 0 && waiting != nil {
			times.Claimed = now
		}
		if times.Removed == 0 && (emptied == nil || !emptied.DeletionTimestamp.IsZero()) {
			times.Removed = now
		}
		if times.Running > 0 {
			return times.Removed > 0, nil
		}
		isRunning, err := b.runs(ctx, waitingPool)
		if isRunning {
			times.Running = time.Since(began)
		}
		return false, err
	})
	if !untilRemoved {
		times.Removed = 0
	}
	return times, err
}

// clear removes a round's objects.
func (b *bench) clear(ctx context.Context, shape *Shape) error {
	objects := []client.Object{podFor(waitingPool), podFor(emptiedPool)}
	for i := range shape.Objects {
		objects = append(objects, shape.Objects[i].DeepCopy())
	}
	for _, object := range objects {
		err := b.kube.Delete(ctx, object, client.GracePeriodSeconds(0))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing what a round made: %w", err)
		}
	}
	return b.until(ctx, "the end of all NodeClaims", func(ctx context.Context) (bool, error) {
		claims, err := b.claims(ctx)
		for i := range claims {
			if claims[i].DeletionTimestamp.IsZero() {
				err = cmp.Or(err, client.IgnoreNotFound(b.kube.Delete(ctx, &claims[i])))
			}
		}
		return len(claims) == 0, err
	})
}

func (b *bench) claims(ctx context.Context) ([]karpv1.NodeClaim, error) {
	list := &karpv1.NodeClaimList{}
	if err := b.kube.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	return list.Items, nil
}

// of returns the claim of a pool; a pool buys no more than one.
func of(claims []karpv1.NodeClaim, pool string) *karpv1.NodeClaim {
	for i := range claims {
		if claims[i].Labels[karpv1.NodePoolLabelKey] == pool {
			return &claims[i]
		}
	}
	return nil
}

// runs reports whether the pool's pod runs, and makes it if it is missing: Kubernetes' taint eviction may notice late
// the end of Karpenter's taint on a new node, and then ends a pod just placed there.
func (b *bench) runs(ctx context.Context, pool string) (bool, error) {
	pod := podFor(pool)
	err := b.kube.Get(ctx, client.ObjectKeyFromObject(pod), pod)
	if apierrors.IsNotFound(err) {
		err = b.kube.Create(ctx, podFor(pool))
	}
	return pod.Status.Phase == corev1.PodRunning, err
}

// podFor returns an ordinary pod for a node of the pool.
func podFor(pool string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: pool, Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{karpv1.NodePoolLabelKey: pool},
			Containers:   []corev1.Container{{Name: "app", Image: "app"}},
		},
	}
}

// errNotYet is why somebody still waits.
var errNotYet = errors.New("not there yet")

// until waits for look to find its object.
func (b *bench) until(ctx context.Context, what string, look func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return process.Await(ctx, what, looking, func(ctx context.Context) error {
		found, err := look(ctx)
		if err == nil && !found {
			return errNotYet
		}
		return err
	})
}
