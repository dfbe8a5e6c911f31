// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Stages of a file, and of the whole: the least advanced file's.
const (
	StageWaiting   = "waiting"
	StageFetching  = "fetching"
	StageVerifying = "verifying"
	StageReady     = "ready"
)

// Progress is what /progress and /startupz answer.
type Progress struct {
	Ready          bool           `json:"ready"`
	Stage          string         `json:"stage"`
	Bytes          int64          `json:"bytes"`
	TotalBytes     int64          `json:"totalBytes"`
	BytesPerSecond int64          `json:"bytesPerSecond"`
	ETASeconds     int64          `json:"etaSeconds"`
	LastError      string         `json:"lastError,omitempty"`
	Files          []FileProgress `json:"files"`
}

// FileProgress is one file's part of Progress.
type FileProgress struct {
	Path       string `json:"path"`
	Stage      string `json:"stage"`
	Bytes      int64  `json:"bytes"`
	TotalBytes int64  `json:"totalBytes"`
}

// tracker collects progress from all downloads.
type tracker struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	// files are not known before the hub has listed them, where nobody named them.
	known bool
	files []FileProgress
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
	t.files = append(t.files, FileProgress{Path: path, Stage: StageWaiting})
}

// expect names the files, once they are known.
func (t *tracker) expect(wants []want) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known, t.files, t.index = true, nil, map[string]int{}
	for _, w := range wants {
		t.add(w.file.Path)
	}
}

// set replaces what is known of a file.
func (t *tracker) set(f FileProgress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.files[t.index[f.Path]] = f
}

func (t *tracker) stage(path, stage string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.files[t.index[path]].Stage = stage
}

// received counts bytes that came over the network.
func (t *tracker) received(path string, n int64) {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.files[t.index[path]].Bytes += n
	t.meter.add(now, n)
}

func (t *tracker) snapshot() Progress {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.known {
		return Progress{Stage: StageWaiting, Files: []FileProgress{}}
	}
	p := Progress{Ready: true, Stage: StageReady, Files: append([]FileProgress(nil), t.files...)}
	for _, f := range t.files {
		p.Bytes += f.Bytes
		p.TotalBytes += f.TotalBytes
		if f.Stage != StageReady {
			p.Ready = false
		}
		if rank(f.Stage) < rank(p.Stage) {
			p.Stage = f.Stage
		}
	}
	p.BytesPerSecond = t.meter.rate(now)
	p.ETASeconds = p.eta()
	return p
}

func (p Progress) eta() int64 {
	if p.BytesPerSecond <= 0 {
		return 0
	}
	return (p.TotalBytes - p.Bytes + p.BytesPerSecond - 1) / p.BytesPerSecond
}

// and is the progress of both: as far as the one that is less far.
func (p Progress) and(other Progress) Progress {
	sum := Progress{
		Ready: p.Ready && other.Ready, Stage: p.Stage,
		Bytes: p.Bytes + other.Bytes, TotalBytes: p.TotalBytes + other.TotalBytes,
		BytesPerSecond: p.BytesPerSecond + other.BytesPerSecond,
		LastError:      cmp.Or(p.LastError, other.LastError),
		Files:          slices.Concat(p.Files, other.Files),
	}
	if rank(other.Stage) < rank(sum.Stage) {
		sum.Stage = other.Stage
	}
	sum.ETASeconds = sum.eta()
	return sum
}

// rank orders the stages by what is being done now, as a person would say it:
// while one file is fetched the whole is being fetched.
func rank(stage string) int {
	switch stage {
	case StageFetching:
		return 0
	case StageVerifying:
		return 1
	case StageWaiting:
		return 2
	}
	return 3
}

const meterWindow = 10

// meter is a rate over the last meterWindow whole seconds.
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
		return 0 // too short to say
	}
	return int64(float64(sum) / window.Seconds())
}
