// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wake wakes InferenceSets without replicas: it writes the time to an annotation, and the controller starts
// replicas.
//
// It decides how often it writes the annotation. It must not know requests.
package wake

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/crd"
	"github.com/modelberth/modelberth/pkg/router/models"
)

const (
	// interval is the time between two writes for a set while requests wait for it.
	interval = 30 * time.Second
	// pause is the time between a failed write and the next one.
	pause = 5 * time.Second
	// timeout is the longest time of a write.
	timeout = 10 * time.Second
	// mostWaiting is the most queued writes. If the queue is full, a set's next request tries again.
	mostWaiting = 256
)

// Set identifies an InferenceSet.
type Set = types.NamespacedName

// Waker writes annotations. Wake queues a write and may be called at any time. Run writes.
type Waker struct {
	write func(ctx context.Context, set Set, at time.Time) error
	log   *slog.Logger
	clock clock.PassiveClock
	todo  chan Set
	mu    sync.Mutex
	asked map[Set]time.Time
}

// New returns a Waker that writes to the API server of config.
func New(config *rest.Config, log *slog.Logger, now clock.PassiveClock) (*Waker, error) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("building the client: %w", err)
	}
	return with(func(ctx context.Context, set Set, at time.Time) error {
		if err := checkFields(ctx, api); err != nil {
			return err
		}
		return annotate(ctx, api, set, at)
	}, log, now), nil
}

func with(write func(context.Context, Set, time.Time) error, log *slog.Logger, now clock.PassiveClock) *Waker {
	return &Waker{write: write, log: log, clock: now, todo: make(chan Set, mostWaiting), asked: map[Set]time.Time{}}
}

// checkFields returns an error while the API server prunes fields of InferenceSets, because each write would lose these
// fields for good (docs/adr/0011-pruned-workspaces.md). Wakes are rare, so it reads the definition each time.
func checkFields(ctx context.Context, api client.Reader) error {
	definition := crd.Object()
	if err := api.Get(ctx, client.ObjectKey{Name: crd.InferenceSets}, definition); err != nil {
		return fmt.Errorf("checking for pruned fields: %w", err)
	}
	if missing := crd.Missing(definition); len(missing) > 0 {
		return fmt.Errorf("the CustomResourceDefinition %s lacks %s: have an administrator apply the definition of this version", crd.InferenceSets, crd.Words(missing))
	}
	return nil
}

// annotate patches only the annotation.
func annotate(ctx context.Context, api client.Client, set Set, at time.Time) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{v1beta1.AnnotationWake: at.UTC().Format(time.RFC3339)},
	}})
	if err != nil {
		return err
	}
	object := &v1beta1.InferenceSet{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name}}
	return api.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("modelberth-router"))
}

// Wake requests replicas of a set, at most once per interval. It returns at once.
func (w *Waker) Wake(owner *models.Owner) {
	set := Set{Namespace: owner.Namespace, Name: owner.Name}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	if at, ok := w.asked[set]; ok && now.Sub(at) < interval {
		return
	}
	for other, at := range w.asked {
		if now.Sub(at) >= interval {
			delete(w.asked, other)
		}
	}
	select {
	case w.todo <- set:
		w.asked[set] = now
	default:
	}
}

// Run writes queued annotations until the context ends.
func (w *Waker) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case set := <-w.todo:
			w.one(ctx, set)
		}
	}
}

// one writes the annotation of a set. After a failure, Wake may queue the set again after a pause.
func (w *Waker) one(ctx context.Context, set Set) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := w.write(ctx, set, w.clock.Now()); err != nil {
		w.log.Warn("a set could not be woken", "set", set.String(), "error", err.Error())
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked[set] = w.clock.Now().Add(pause - interval)
		return
	}
	w.log.Info("set woken", "set", set.String())
}
