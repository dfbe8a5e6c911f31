// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults stands between a controller and the API server: it counts writes and makes the
// controller crash at a chosen one, before or after the write has been done.
//
// It must not know what the writes are for.
package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrCrashed is what every write of a crashed controller returns.
var ErrCrashed = errors.New("crashed by the test")

// Moment says when the crash comes.
type Moment string

// The moments.
const (
	// Before the write is sent.
	Before Moment = "before"
	// After the write has been done and before its answer is seen.
	After Moment = "after"
)

// Recorder counts the writes of one life of a controller.
type Recorder struct {
	mu     sync.Mutex
	writes []string
	passes int
	dead   bool

	crashAt int
	moment  Moment
	crash   func()
}

// NewRecorder returns a Recorder that lets everything pass.
func NewRecorder() *Recorder { return &Recorder{} }

// CrashAt returns a Recorder that calls crash at the write with that number, counted from 1, and
// lets none pass from then on.
func CrashAt(number int, moment Moment, crash func()) *Recorder {
	return &Recorder{crashAt: number, moment: moment, crash: crash}
}

// Writes returns what was written, in order.
func (r *Recorder) Writes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.writes...)
}

// Crashed says whether the crash has come.
func (r *Recorder) Crashed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dead
}

// Passes returns how often the controller has read an object through a cached Get of that kind.
func (r *Recorder) Passes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.passes
}

func (r *Recorder) write(what string, object any, send func() error) error {
	r.mu.Lock()
	if r.dead {
		r.mu.Unlock()
		return ErrCrashed
	}
	r.writes = append(r.writes, fmt.Sprintf("%s %T", what, object))
	hit := r.crashAt > 0 && len(r.writes) == r.crashAt
	r.dead = hit
	r.mu.Unlock()
	if !hit {
		return send()
	}
	if r.moment == After {
		if err := send(); err != nil {
			return err
		}
	}
	r.crash()
	return ErrCrashed
}

// Client wraps a client with the Recorder. marker is the kind whose reads count as passes.
func (r *Recorder) Client(inner client.Client, marker client.Object) client.Client {
	return &recorded{Client: inner, recorder: r, marker: fmt.Sprintf("%T", marker)}
}

type recorded struct {
	client.Client
	recorder *Recorder
	marker   string
}

func (c *recorded) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if fmt.Sprintf("%T", object) == c.marker {
		c.recorder.mu.Lock()
		c.recorder.passes++
		c.recorder.mu.Unlock()
	}
	return c.Client.Get(ctx, key, object, options...)
}

func (c *recorded) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return c.recorder.write("create", object, func() error { return c.Client.Create(ctx, object, options...) })
}

func (c *recorded) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	return c.recorder.write("delete", object, func() error { return c.Client.Delete(ctx, object, options...) })
}

func (c *recorded) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	return c.recorder.write("update", object, func() error { return c.Client.Update(ctx, object, options...) })
}

func (c *recorded) Patch(
	ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption,
) error {
	return c.recorder.write("patch", object, func() error { return c.Client.Patch(ctx, object, patch, options...) })
}

func (c *recorded) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	return c.recorder.write("apply", object, func() error { return c.Client.Apply(ctx, object, options...) })
}

func (c *recorded) DeleteAllOf(ctx context.Context, object client.Object, options ...client.DeleteAllOfOption) error {
	return c.recorder.write("deleteAllOf", object, func() error { return c.Client.DeleteAllOf(ctx, object, options...) })
}

func (c *recorded) Status() client.SubResourceWriter {
	return &recordedStatus{SubResourceWriter: c.Client.Status(), recorder: c.recorder}
}

type recordedStatus struct {
	client.SubResourceWriter
	recorder *Recorder
}

func (c *recordedStatus) Update(ctx context.Context, object client.Object, options ...client.SubResourceUpdateOption) error {
	return c.recorder.write("update status of", object, func() error {
		return c.SubResourceWriter.Update(ctx, object, options...)
	})
}

func (c *recordedStatus) Patch(
	ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
) error {
	return c.recorder.write("patch status of", object, func() error {
		return c.SubResourceWriter.Patch(ctx, object, patch, options...)
	})
}
