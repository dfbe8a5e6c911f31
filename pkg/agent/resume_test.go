// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"testing"

	"github.com/modelberth/modelberth/pkg/hub"
)

func contextWithCancel(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(t.Context())
}

// leaveHalf puts what an interrupted run leaves on a volume.
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

func TestStopSavesWhatArrived(t *testing.T) {
	data := noise(8 << 20)
	h := newFakeHub(t, map[string][]byte{"a": data})
	h.setFault(func(_ http.ResponseWriter, r *http.Request) (int64, bool) {
		if isContent(r) {
			return 3 << 20, false
		}
		return noLimit, false
	})
	dir := t.TempDir()
	r := newRig(t, h, dir)
	ctx, cancel := contextWithCancel(t)
	result := make(chan error, 1)
	go func() { result <- r.Run(ctx) }()
	waitUntil(t, "half has arrived", func() bool { return r.Progress().Bytes >= 4<<20 })
	cancel()
	arrived := h.servedBytes("a")
	if err := <-result; err == nil && arrived < int64(len(data)) {
		t.Fatal("Run() succeeded although it was stopped")
	}
	if _, err := os.Stat(dir + "/a"); err == nil {
		t.Skip("the fetch was faster than the stop")
	}
	h.setFault(nil)
	if err := newRig(t, h, dir).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	// What was on its way in buffers at the moment of the stop is lost.
	const onTheWay = 1 << 20
	if got := h.servedBytes("a"); got > int64(len(data))+onTheWay {
		t.Errorf("hub sent %d bytes in both runs, want at most %d", got, len(data)+onTheWay)
	}
}
