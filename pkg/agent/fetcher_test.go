// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"net/http"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/agent/fetch"
	"github.com/modelberth/modelberth/pkg/hub"
)

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestFetch(t *testing.T) {
	big := noise(34 << 20)
	for _, tc := range []struct {
		reason string
		files  map[string][]byte
	}{
		{"one small file", map[string][]byte{"a.gguf": noise(1000)}},
		{"a file of several pieces", map[string][]byte{"a.gguf": big}},
		{"a file of exactly one piece", map[string][]byte{"a.gguf": noise(16 << 20)}},
		{"several files at once, in directories", map[string][]byte{"a.gguf": noise(3 << 20), "q4/b.gguf": noise(17 << 20), "q4/x/c": noise(5)}},
		{"an empty file", map[string][]byte{"empty": {}, "a": noise(10)}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			h := newFakeHub(t, tc.files)
			r := newRig(t, h, t.TempDir())
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			for p, want := range tc.files {
				if !bytes.Equal(r.read(t, p), want) {
					t.Errorf("content of %q differs", p)
				}
				if got := h.servedBytes(p); got != int64(len(want)) {
					t.Errorf("%q: hub sent %d bytes, want %d", p, got, len(want))
				}
			}
			p := r.Progress()
			if !p.Ready || p.Stage != fetch.StageReady || p.Bytes != p.TotalBytes {
				t.Errorf("Progress() = %+v, want everything ready", p)
			}
		})
	}
}

func TestFetchLeavesOnlyFilesAndMarkers(t *testing.T) {
	h := newFakeHub(t, map[string][]byte{"a.gguf": noise(3 << 20)})
	r := newRig(t, h, t.TempDir())
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a.gguf", "a.gguf.verified"}, namesIn(t, r.dir)); diff != "" {
		t.Errorf("names on the volume (-want +got):\n%s", diff)
	}
}

func TestRestart(t *testing.T) {
	data := noise(1 << 20)
	lookups := []string{
		"GET /api/models/org/model/revision/main",
		"HEAD /org/model/resolve/" + testCommit + "/a",
	}
	fetch := append(slices.Clone(lookups), "GET /org/model/resolve/"+testCommit+"/a")
	for _, tc := range []struct {
		reason string
		// between is called between two runs of the agent.
		between func(t *testing.T, file string)
		change  func(*Config)
		want    []string
	}{
		{"a verified file needs neither the hub nor hashing", func(*testing.T, string) {}, nil, nil},
		{
			"a lost marker costs hashing, and a question what to compare with",
			func(t *testing.T, file string) { remove(t, file+".verified") }, nil, lookups,
		},
		{
			"a known checksum needs no question",
			func(t *testing.T, file string) { remove(t, file+".verified") },
			func(c *Config) { c.SHA256 = map[string]hub.Digest{"a": {Algorithm: hub.SHA256, Hex: sha256Hex(data)}} }, nil,
		},
		{
			"a damaged marker is no marker",
			func(t *testing.T, file string) { write(t, file+".verified", []byte("{")) }, nil, lookups,
		},
		{
			"a touched file is hashed again",
			func(t *testing.T, file string) { touch(t, file) }, nil, lookups,
		},
		{
			"a changed file is fetched again",
			func(t *testing.T, file string) { write(t, file, noise(1<<20+1)) }, nil, fetch,
		},
		{
			"a file of the right size and the wrong content, without a marker, is fetched again",
			func(t *testing.T, file string) {
				write(t, file, make([]byte, 1<<20))
				remove(t, file+".verified")
			}, nil, fetch,
		},
		{
			"another revision with the same content is hashed, not fetched",
			func(*testing.T, string) {}, func(c *Config) { c.Revision = testCommit }, lookups[1:],
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			h := newFakeHub(t, map[string][]byte{"a": data})
			dir := t.TempDir()
			if err := newRig(t, h, dir).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := len(h.requestLog())
			tc.between(t, dir+"/a")
			var changes []func(*Config)
			if tc.change != nil {
				changes = append(changes, tc.change)
			}
			r := newRig(t, h, dir, changes...)
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(r.read(t, "a"), data) {
				t.Error("content differs")
			}
			if diff := cmp.Diff(tc.want, append([]string(nil), h.requestLog()[before:]...)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	at := time.Unix(1_000_000_000, 0)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// The expected size and checksum of a file come from the strongest available source.
func TestExpectedChecksum(t *testing.T) {
	data := noise(5000)
	right := hub.Digest{Algorithm: hub.SHA256, Hex: sha256Hex(data)}
	const tree = "GET /api/models/org/model/tree/" + testCommit
	for _, tc := range []struct {
		reason   string
		given    hub.Digest
		headers  string // checksum in the file's own answer
		noTree   bool
		wantTree bool
		wantErr  any
	}{
		{"the file's own answer suffices", hub.Digest{}, right.Hex, true, false, nil},
		{"a small file has its checksum in the tree", hub.Digest{}, "", false, true, nil},
		{"the caller's checksum beats the hub's", right, strings.Repeat("0", 64), true, false, nil},
		{"no checksum anywhere: not fetched", hub.Digest{}, "", true, true, new(*UnverifiableError)},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			h := newFakeHub(t, map[string][]byte{"a": data})
			h.shas["a"] = tc.headers
			h.setFault(func(w http.ResponseWriter, r *http.Request) (int64, bool) {
				if tc.noTree && strings.Contains(r.URL.Path, "/tree/") {
					w.WriteHeader(http.StatusNotFound)
					return 0, true
				}
				return noLimit, false
			})
			r := newRig(t, h, t.TempDir(), func(c *Config) {
				if !tc.given.IsZero() {
					c.SHA256 = map[string]hub.Digest{"a": tc.given}
				}
			})
			err := r.Run(t.Context())
			if (err != nil) != (tc.wantErr != nil) || !asIfWanted(err, tc.wantErr) {
				t.Errorf("Run() = %v, want %T", err, tc.wantErr)
			}
			if got := slices.Contains(h.requestLog(), tree); got != tc.wantTree {
				t.Errorf("tree asked: %t, want %t", got, tc.wantTree)
			}
			if err != nil && h.servedBytes("a") != 0 {
				t.Error("bytes were fetched that cannot be verified")
			}
		})
	}
}

func TestSymlinkLeadsNowhere(t *testing.T) {
	outside := t.TempDir()
	dir := t.TempDir()
	if err := os.Symlink(outside, dir+"/q4"); err != nil {
		t.Fatal(err)
	}
	h := newFakeHub(t, map[string][]byte{"q4/a": noise(10)})
	err := newRig(t, h, dir).Run(t.Context())
	if !asIfWanted(err, new(*StorageError)) {
		t.Errorf("Run() = %v, want a StorageError", err)
	}
	if names := namesIn(t, outside); len(names) != 0 {
		t.Errorf("outside of the volume there are now %q", names)
	}
}

func TestDirectoryInTheWay(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/a", 0o755); err != nil {
		t.Fatal(err)
	}
	h := newFakeHub(t, map[string][]byte{"a": noise(10)})
	if err := newRig(t, h, dir).Run(t.Context()); !asIfWanted(err, new(*StorageError)) {
		t.Errorf("Run() = %v, want a StorageError", err)
	}
}

func TestManyFilesShareConnections(t *testing.T) {
	files := map[string][]byte{}
	for p := range strings.SplitSeq("abcdefghij", "") {
		files[p] = noise(100_000 + int(p[0]))
	}
	h := newFakeHub(t, files)
	var now, most int
	h.setFault(func(_ http.ResponseWriter, r *http.Request) (int64, bool) {
		if isContent(r) {
			h.mu.Lock()
			now++
			most = max(most, now)
			h.mu.Unlock()
			time.Sleep(5 * time.Millisecond)
			h.mu.Lock()
			now--
			h.mu.Unlock()
		}
		return noLimit, false
	})
	r := newRig(t, h, t.TempDir(), func(c *Config) { c.Connections = 2 })
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if most != 2 {
		t.Errorf("at most %d requests for content were under way at once, want 2", most)
	}
	var got []string
	for _, f := range r.Progress().Files {
		got = append(got, f.Path)
	}
	sort.Strings(got)
	if diff := cmp.Diff(strings.Split("abcdefghij", ""), got); diff != "" {
		t.Errorf("files in progress (-want +got):\n%s", diff)
	}
}
