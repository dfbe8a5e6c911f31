// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/agent/fetch"
)

// tracker collects progress from all downloads.
type tracker struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	// known is set once the names of the files are known: from the flags, or from the hub's list.
	known bool
	files []fetch.FileProgress
	index map[string]int
	meter meter
}

func newTracker(c clock.PassiveClock, paths []string) *tracker {
	t := &tracker{clock: c, known: len(paths) > 0, index: map[string]int{}}
	for _, p := range paths {
		t.add(p)
	}
	return t
}

func (t *tracker) add(path string) {
	t.index[path] = len(t.files)
	t.files = append(t.files, fetch.FileProgress{Path: path, Stage: fetch.StageWaiting})
}

// expect sets the files, once their names are known.
func (t *tracker) expect(wants []want) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known, t.files, t.index = true, nil, map[string]int{}
	for _, w := range wants {
		t.add(w.file.Path)
	}
}

// set replaces the state of a file.
func (t *tracker) set(f fetch.FileProgress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.files[t.index[f.Path]] = f
}

// ready marks a file as verified.
func (t *tracker) ready(path string, size int64) {
	t.set(fetch.FileProgress{Path: path, Stage: fetch.StageReady, Bytes: size, TotalBytes: size})
}

func (t *tracker) stage(path, stage string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.files[t.index[path]].Stage = stage
}

// received counts bytes from the network.
func (t *tracker) received(path string, n int64) {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.files[t.index[path]].Bytes += n
	t.meter.add(now, n)
}

func (t *tracker) snapshot() fetch.Progress {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.known {
		return fetch.Progress{Stage: fetch.StageWaiting, Files: []fetch.FileProgress{}}
	}
	p := fetch.Progress{Ready: true, Stage: fetch.StageReady, Files: append([]fetch.FileProgress(nil), t.files...)}
	for _, f := range t.files {
		p.Bytes += f.Bytes
		p.TotalBytes += f.TotalBytes
		if f.Stage != fetch.StageReady {
			p.Ready = false
		}
		if fetch.IsEarlier(f.Stage, p.Stage) {
			p.Stage = f.Stage
		}
	}
	p.BytesPerSecond = t.meter.rate(now)
	p.ETASeconds = p.Remaining()
	return p
}

const meterWindow = 10

// meter measures a rate over the last meterWindow whole seconds.
type meter struct {
	start   time.Time
	seconds [meterWindow + 1]struct {
		at    int64
		bytes int64
	}
}

func (m *meter) add(now time.Time, n int64) {
	if m.start.IsZero() {
		m.start = now
	}
	s := &m.seconds[now.Unix()%int64(len(m.seconds))]
	if s.at != now.Unix() {
		s.at, s.bytes = now.Unix(), 0
	}
	s.bytes += n
}

func (m *meter) rate(now time.Time) int64 {
	var sum int64
	for _, s := range m.seconds {
		if s.at > now.Unix()-meterWindow {
			sum += s.bytes
		}
	}
	window := min(now.Sub(m.start), meterWindow*time.Second)
	if window < 100*time.Millisecond {
		return 0 // the time is too short for a rate
	}
	return int64(float64(sum) / window.Seconds())
}
