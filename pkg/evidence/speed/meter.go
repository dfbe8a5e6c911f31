// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package speed measures how fast engines serve, from the metrics that other controllers read.
//
// It decides which part of an engine's work is under a steady load, and when there is enough of it. It must not know
// plans or laws. It sends no requests, neither to engines nor to the API server.
package speed

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engineprobe"
)

const (
	// askAgain is the least time between two passes over a Workspace to store the same lesson.
	askAgain = 5 * time.Minute
	// silence is how long the Meter keeps an engine without a reading.
	silence = time.Hour
)

// Meter keeps the speed of engines in memory. After a restart, it collects lessons that were not stored again.
type Meter struct {
	// Due requests a pass over a Workspace whose lesson is to be stored.
	Due func(types.NamespacedName)

	mu      sync.Mutex
	engines map[types.UID]*engine
	// swept is the last time that silent engines were dropped.
	swept time.Time
}

// NewMeter returns an empty Meter.
func NewMeter() *Meter { return &Meter{engines: map[types.UID]*engine{}} }

// Note adds a reading of the engine in a Workspace's pod.
func (m *Meter) Note(ws *v1beta1.Workspace, pod types.UID, at time.Time, read *engineprobe.Speed) {
	if m.note(ws, pod, &reading{at: at, Speed: *read}) {
		m.Due(client.ObjectKeyFromObject(ws))
	}
}

func (m *Meter) note(ws *v1beta1.Workspace, pod types.UID, now *reading) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep(now.at)
	found := m.engines[ws.UID]
	if found == nil {
		found = &engine{}
		m.engines[ws.UID] = found
	}
	found.read(pod, now)
	lesson, ok := found.lesson()
	if !ok || !IsDue(ws.Status.Engine, &lesson, now.at) || now.at.Sub(found.asked) < askAgain {
		return false
	}
	found.asked = now.at
	return true
}

// Of returns the lesson of the engine in a Workspace's pod; false if there is none yet.
func (m *Meter) Of(ws, pod types.UID) (v1beta1.EngineSpeed, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := m.engines[ws]
	if found == nil || found.pod != pod {
		return v1beta1.EngineSpeed{}, false
	}
	return found.lesson()
}

// sweep drops engines that have had no reading for long, such as those of deleted Workspaces.
func (m *Meter) sweep(now time.Time) {
	if now.Sub(m.swept) < silence {
		return
	}
	m.swept = now
	maps.DeleteFunc(m.engines, func(_ types.UID, e *engine) bool { return now.Sub(e.last.at) > silence })
}
