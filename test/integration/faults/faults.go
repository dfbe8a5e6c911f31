// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults stands between a controller and the API server. It counts writes, and makes a chosen one fail, or
// crashes the controller before or after it. It also makes the controller's cache lag.
//
// It must not know the purpose of the writes.
package faults

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrCrashed is the error of every write of a crashed controller.
var ErrCrashed = errors.New("crashed by the test")

// Conflict ends the entry of a write the API server refused because the object had changed.
const Conflict = " (conflict)"

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
	mu sync.Mutex
	// sent counts every request to write, dry runs too; writes are the real ones.
	sent   int
	writes []string
	passes map[client.ObjectKey]int
	// hidden selects the objects missing from lists of a kind.
	hidden map[string]func(client.Object) bool
	// frozen are the results of reads of the marked kind, regardless of later writes.
	frozen map[client.ObjectKey]client.Object
	dead   bool
	failed bool

	hitAt  int
	moment Moment
	crash  func()
	fault  error
}

// NewRecorder returns a Recorder without faults.
func NewRecorder() *Recorder {
	return &Recorder{
		passes: map[client.ObjectKey]int{}, hidden: map[string]func(client.Object) bool{},
		frozen: map[client.ObjectKey]client.Object{},
	}
}

// CrashAt returns a Recorder. It calls crash at the request to write with the given number, counted from 1, and lets
// none pass from then on.
func CrashAt(number int, moment Moment, crash func()) *Recorder {
	r := NewRecorder()
	r.hitAt, r.moment, r.crash = number, moment, crash
	return r
}

// FailAt returns a Recorder. It answers the request to write with the given number, counted from 1, with err instead
// of sending it, once. The controller goes on living.
func FailAt(number int, err error) *Recorder {
	r := NewRecorder()
	r.hitAt, r.fault = number, err
	return r
}

// Writes returns the intended writes, in order.
func (r *Recorder) Writes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.writes...)
}

// Crashed reports whether the crash has happened.
func (r *Recorder) Crashed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dead
}

// Failed reports whether the chosen request has failed.
func (r *Recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// Passes returns the number of the controller's reads of the marked kind's object with the key.
func (r *Recorder) Passes(key client.ObjectKey) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.passes[key]
}

// Hide keeps objects out of the lists of a kind, like a cache before their events.
func (r *Recorder) Hide(list client.ObjectList, isMeant func(client.Object) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hidden[fmt.Sprintf("%T", list)] = isMeant
}

// Show ends Hide. The events are over by then: nothing makes the controller look again.
func (r *Recorder) Show(list client.ObjectList) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.hidden, fmt.Sprintf("%T", list))
}

// hide removes the hidden objects from a list.
func (r *Recorder) hide(list client.ObjectList) error {
	r.mu.Lock()
	isMeant := r.hidden[fmt.Sprintf("%T", list)]
	r.mu.Unlock()
	if isMeant == nil {
		return nil
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	return meta.SetList(list, slices.DeleteFunc(items, func(item runtime.Object) bool {
		object, ok := item.(client.Object)
		return ok && isMeant(object)
	}))
}

// Freeze makes reads of the marked kind's object return it as it is now, like a cache before later events.
func (r *Recorder) Freeze(object client.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if frozen, ok := object.DeepCopyObject().(client.Object); ok {
		r.frozen[client.ObjectKeyFromObject(object)] = frozen
	}
}

// Thaw ends Freeze. The events are over by then: nothing makes the controller look again.
func (r *Recorder) Thaw(key client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.frozen, key)
}

// pass counts a read of the marked kind. It reports whether object has the frozen version.
func (r *Recorder) pass(key client.ObjectKey, object client.Object) (isFrozen bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passes[key]++
	frozen, isFrozen := r.frozen[key]
	if isFrozen {
		reflect.ValueOf(object).Elem().Set(reflect.ValueOf(frozen.DeepCopyObject()).Elem())
	}
	return isFrozen
}

func (r *Recorder) write(what string, object any, dry bool, send func() error) error {
	entry := fmt.Sprintf("%s %T", what, object)
	hit, err := r.note(entry, dry)
	if err != nil {
		return err
	}
	if !hit {
		err := send()
		if apierrors.IsConflict(err) && !dry {
			r.markConflict(entry)
		}
		return err
	}
	if r.moment == After {
		if err := send(); err != nil {
			return err
		}
	}
	r.crash()
	return ErrCrashed
}

// note counts a request. It reports whether the controller is to crash at it, or returns the error to answer with.
func (r *Recorder) note(what string, dry bool) (hit bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		return false, ErrCrashed
	}
	r.sent++
	hit = r.hitAt > 0 && r.sent == r.hitAt
	if hit && r.fault != nil {
		r.failed = true
		return false, r.fault
	}
	if !dry {
		r.writes = append(r.writes, what)
	}
	r.dead = hit
	return hit, nil
}

// markConflict marks the last such entry.
func (r *Recorder) markConflict(entry string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.writes) - 1; i >= 0; i-- {
		if r.writes[i] == entry {
			r.writes[i] += Conflict
			return
		}
	}
}

func isDry(dryRun []string) bool { return slices.Contains(dryRun, metav1.DryRunAll) }

// Client wraps a client with the Recorder. Reads of the marker's kind count as passes.
func (r *Recorder) Client(inner client.Client, marker client.Object) client.Client {
	return &recorded{Client: inner, recorder: r, marker: fmt.Sprintf("%T", marker)}
}

type recorded struct {
	client.Client
	recorder *Recorder
	marker   string
}

func (c *recorded) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if fmt.Sprintf("%T", object) == c.marker && c.recorder.pass(key, object) {
		return nil
	}
	return c.Client.Get(ctx, key, object, options...)
}

func (c *recorded) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := c.Client.List(ctx, list, options...); err != nil {
		return err
	}
	return c.recorder.hide(list)
}

func (c *recorded) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	dry := isDry((&client.CreateOptions{}).ApplyOptions(options).DryRun)
	return c.recorder.write("create", object, dry, func() error { return c.Client.Create(ctx, object, options...) })
}

func (c *recorded) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	dry := isDry((&client.DeleteOptions{}).ApplyOptions(options).DryRun)
	return c.recorder.write("delete", object, dry, func() error { return c.Client.Delete(ctx, object, options...) })
}

func (c *recorded) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	dry := isDry((&client.UpdateOptions{}).ApplyOptions(options).DryRun)
	return c.recorder.write("update", object, dry, func() error { return c.Client.Update(ctx, object, options...) })
}

func (c *recorded) Patch(
	ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption,
) error {
	dry := isDry((&client.PatchOptions{}).ApplyOptions(options).DryRun)
	return c.recorder.write("patch", object, dry, func() error { return c.Client.Patch(ctx, object, patch, options...) })
}

func (c *recorded) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	dry := isDry((&client.ApplyOptions{}).ApplyOptions(options).DryRun)
	return c.recorder.write("apply", object, dry, func() error { return c.Client.Apply(ctx, object, options...) })
}

func (c *recorded) DeleteAllOf(ctx context.Context, object client.Object, options ...client.DeleteAllOfOption) error {
	return c.recorder.write("deleteAllOf", object, false, func() error { return c.Client.DeleteAllOf(ctx, object, options...) })
}

func (c *recorded) Status() client.SubResourceWriter {
	return &recordedStatus{SubResourceWriter: c.Client.Status(), recorder: c.recorder}
}

type recordedStatus struct {
	client.SubResourceWriter
	recorder *Recorder
}

func (c *recordedStatus) Update(ctx context.Context, object client.Object, options ...client.SubResourceUpdateOption) error {
	return c.recorder.write("update status of", object, false, func() error {
		return c.SubResourceWriter.Update(ctx, object, options...)
	})
}

func (c *recordedStatus) Patch(
	ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
) error {
	return c.recorder.write("patch status of", object, false, func() error {
		return c.SubResourceWriter.Patch(ctx, object, patch, options...)
	})
}

// SubResource records the writes of a subresource by patch.
func (c *recorded) SubResource(name string) client.SubResourceClient {
	return &recordedSubResource{SubResourceClient: c.Client.SubResource(name), recorder: c.recorder, name: name}
}

type recordedSubResource struct {
	client.SubResourceClient
	recorder *Recorder
	name     string
}

func (c *recordedSubResource) Patch(
	ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
) error {
	return c.recorder.write("patch "+c.name+" of", object, false, func() error {
		return c.SubResourceClient.Patch(ctx, object, patch, options...)
	})
}
