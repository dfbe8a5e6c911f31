// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"testing"

	"github.com/modelberth/modelberth/pkg/hub"
)

// leaveHalf leaves the state of an interrupted run on a volume.
func leaveHalf(t *testing.T, dir string, s state, content []byte) {
	t.Helper()
	record, err := encodeState(s)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/a.partial", content)
	write(t, dir+"/a.partial.json", record)
}

func TestResume(t *testing.T) {
	data := noise(4 << 20)
	size := int64(len(data))
	sum := hub.Digest{Algorithm: hub.SHA256, Hex: sha256Hex(data)}
	half := ranges{{Start: 0, End: 1 << 20}, {Start: 3 << 20, End: 4 << 20}}
	holes := bytes.Clone(data)
	clear(holes[1<<20 : 3<<20])
	spoilt := bytes.Clone(holes)
	spoilt[17]++
	for _, tc := range []struct {
		reason  string
		prepare func(t *testing.T, dir string)
		want    int64
	}{
		{"only the holes are fetched", func(t *testing.T, dir string) {
			leaveHalf(t, dir, state{size, sum, half}, holes)
		}, 2 << 20},
		{"nothing is fetched when all was there but the name", func(t *testing.T, dir string) {
			leaveHalf(t, dir, state{size, sum, ranges{{Start: 0, End: size}}}, data)
		}, 0},
		{"content of another checksum is not mixed in", func(t *testing.T, dir string) {
			leaveHalf(t, dir, state{size, hub.Digest{Algorithm: hub.SHA256, Hex: "00"}, half}, spoilt)
		}, size},
		{"content of another size is not mixed in", func(t *testing.T, dir string) {
			leaveHalf(t, dir, state{size + 1, sum, half}, append(bytes.Clone(spoilt), 1, 2, 3))
		}, size},
		{"a record without its bytes is not believed", func(t *testing.T, dir string) {
			leaveHalf(t, dir, state{size, sum, half}, holes[:3<<20])
		}, size},
		{"a record without its file is not believed", func(t *testing.T, dir string) {
			leaveHalf(t, dir, state{size, sum, half}, nil)
			remove(t, dir+"/a.partial")
		}, size},
		{"bytes without a record are not believed", func(t *testing.T, dir string) {
			write(t, dir+"/a.partial", append(bytes.Clone(spoilt), 1, 2, 3))
		}, size},
		{"a damaged record is not believed", func(t *testing.T, dir string) {
			leaveHalf(t, dir, state{size, sum, half}, spoilt)
			write(t, dir+"/a.partial.json", []byte(`{"version":1`))
		}, size},
		{"spoilt bytes under a good record are found by the checksum", func(t *testing.T, dir string) {
			leaveHalf(t, dir, state{size, sum, half}, spoilt)
		}, 2<<20 + size},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			h := newFakeHub(t, map[string][]byte{"a": data})
			r := newRig(t, h, t.TempDir())
			tc.prepare(t, r.dir)
			stop := watchName(t, r.dir+"/a", data)
			err := r.Run(t.Context())
			stop()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(r.read(t, "a"), data) {
				t.Error("content differs")
			}
			if got := h.servedBytes("a"); got != tc.want {
				t.Errorf("hub sent %d bytes, want %d", got, tc.want)
			}
			if names := namesIn(t, r.dir); len(names) != 2 {
				t.Errorf("left on the volume: %q, want the file and its marker", names)
			}
		})
	}
}

// stopHalfWay sends only the first bytes of "a". Once they have arrived, it stops the run, as SIGTERM would.
func stopHalfWay(t *testing.T, h *fakeHub, dir string, first int) {
	t.Helper()
	gate := make(chan struct{})
	h.setFault(func(w http.ResponseWriter, r *http.Request) (int64, bool) {
		if !isContent(r) {
			return noLimit, false
		}
		h.serveFile(slowWriter{w, first, new(int), gate}, r, "a", h.files["a"], noLimit)
		return 0, true
	})
	r := newRig(t, h, dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- r.Run(ctx) }()
	waitUntil(t, "the first part has arrived", func() bool { return r.Progress().Bytes == int64(first) })
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("Run() = %v, want it stopped", err)
	}
	close(gate)
	h.setFault(nil)
}

func TestStopSavesArrivedBytes(t *testing.T) {
	data := noise(8 << 20)
	h := newFakeHub(t, map[string][]byte{"a": data})
	dir := t.TempDir()
	stopHalfWay(t, h, dir, 5<<20)
	if _, err := os.Stat(dir + "/a"); err == nil {
		t.Error("the file has its name although half of it is missing")
	}
	r := newRig(t, h, dir)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(r.read(t, "a"), data) {
		t.Error("content differs")
	}
	if got := h.servedBytes("a"); got != int64(len(data)) {
		t.Errorf("hub sent %d bytes in both runs, want %d: nothing twice", got, len(data))
	}
}
