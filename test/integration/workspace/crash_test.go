// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// crash is a controller's crash at one of its writes. Another controller then takes over.
type crash struct {
	world    *world
	begin    func(*testing.T, *faults.Recorder) *life
	recorder *faults.Recorder
	first    *life
	// came reports that the crash has happened.
	came bool
}

// crashAt starts a controller that crashes at the given write.
func (w *world) crashAt(t *testing.T, number int, moment faults.Moment, begin func(*testing.T, *faults.Recorder) *life) *crash {
	t.Helper()
	c := &crash{world: w, begin: begin}
	c.recorder = faults.CrashAt(number, moment, func() { c.first.cancel() })
	c.first = begin(t, c.recorder)
	return c
}

func (c *crash) takeOver(t *testing.T) {
	t.Helper()
	if c.recorder.Crashed() && !c.came {
		c.came = true
		c.first.end(t)
		c.begin(t, faults.NewRecorder())
	}
}

// untilReady waits until a Workspace answers, whoever brings it there.
func (c *crash) untilReady(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	eventually(t, "ready", func() (bool, string) {
		c.takeOver(t)
		if err := c.world.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		return ws.Status.State == v1beta1.StateReady, saying(ws)
	})
}

// untilDeleted deletes a Workspace, and waits until it is gone.
func (c *crash) untilDeleted(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	if err := c.world.client.Delete(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	eventually(t, "gone", func() (bool, string) {
		c.takeOver(t)
		err := c.world.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws)
		return err != nil && client.IgnoreNotFound(err) == nil, saying(ws)
	})
}
