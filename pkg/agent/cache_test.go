// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/pkg/hub"
)

func openTestCache(t *testing.T, dir string, limit int64) *Cache {
	t.Helper()
	// The clock stands still in the future, so that the test sets the time of a file's last use.
	c, err := OpenCache(dir, limit, clocktesting.NewFakeClock(time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func with(c *Cache) func(*Config) { return func(config *Config) { config.Cache = c } }

func digestOf(b []byte) hub.Digest { return hub.Digest{Algorithm: hub.SHA256, Hex: sha256Hex(b)} }

// Two pods start at once: the file is fetched once, and both have it.
func TestCacheFetchesOnce(t *testing.T) {
	data := noise(20 << 20)
	h := newFakeHub(t, map[string][]byte{"q4/a": data})
	dir := t.TempDir()
	var pods sync.WaitGroup
	for range 3 {
		r := newRig(t, h, t.TempDir(), with(openTestCache(t, dir, 0)))
		pods.Go(func() {
			if err := r.Run(t.Context()); err != nil {
				t.Error(err)
				return
			}
			if got, err := os.ReadFile(r.dir + "/q4/a"); err != nil || !bytes.Equal(got, data) {
				t.Errorf("content differs (%v)", err)
			}
			if p := r.Progress(); !p.Ready || p.Bytes != int64(len(data)) {
				t.Errorf("Progress() = %+v, want it ready", p)
			}
		})
	}
	pods.Wait()
	if got := h.servedBytes("q4/a"); got != int64(len(data)) {
		t.Errorf("hub sent %d bytes to three pods, want %d: each byte once", got, len(data))
	}
}

// Of two processes, the first is killed half-way, and the second takes over its files.
func TestCacheAfterAKill(t *testing.T) {
	data := noise(16 << 20)
	h := newFakeHub(t, map[string][]byte{"a": data})
	gate := make(chan struct{})
	h.setFault(func(w http.ResponseWriter, r *http.Request) (int64, bool) {
		if !isContent(r) {
			return noLimit, false
		}
		h.serveFile(slowWriter{w, 8 << 20, new(int), gate}, r, "a", data, noLimit)
		return 0, true
	})
	cache := t.TempDir()
	first := start(t, volumeDir(t), "--endpoint", h.URL, "--cache", cache, "--file", "a")
	blob := filepath.Join(cache, blobPath(keyOf(digestOf(data))))
	waitUntil(t, "half is noted", func() bool { return noted(blob) >= 7<<20 })
	secondDir := volumeDir(t)
	second := start(t, secondDir, "--endpoint", h.URL, "--cache", cache, "--file", "a")
	address := second.address(t)
	waitUntil(t, "the second sees how far the first is", func() bool { return progressOf(t, address).Bytes >= 7<<20 })
	if _, err := os.Lstat(blob); err == nil {
		t.Error("half a file counts as whole")
	}
	h.setFault(nil)
	before := h.servedBytes("a")
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.exitCode(t)
	close(gate)
	waitUntil(t, "the second is ready", func() bool { return status(t, address+"/startupz") == http.StatusOK })
	if got, err := os.ReadFile(secondDir + "/a"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("content differs (%v)", err)
	}
	if got := h.servedBytes("a") - before; got > 9<<20 {
		t.Errorf("the second fetched %d bytes, want only what the first had left", got)
	}
	end(t, second)
}

// A later pod fetches no bytes. If the checksums are known, it needs no hub.
func TestCacheServesWithoutAHub(t *testing.T) {
	data := noise(1 << 20)
	h := newFakeHub(t, map[string][]byte{"a": data})
	dir := t.TempDir()
	given := func(c *Config) { c.SHA256 = map[string]hub.Digest{"a": digestOf(data)} }
	if err := newRig(t, h, t.TempDir(), with(openTestCache(t, dir, 0)), given).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.setFault(refuse(503, ""))
	later := newRig(t, h, t.TempDir(), with(openTestCache(t, dir, 0)), given)
	if err := later.Run(t.Context()); err != nil || !bytes.Equal(later.read(t, "a"), data) {
		t.Errorf("Run() = %v, want the file from the cache", err)
	}
}

func TestCacheSpoilt(t *testing.T) {
	data := noise(1 << 20)
	h := newFakeHub(t, map[string][]byte{"a": data})
	for _, tc := range []struct {
		reason string
		spoil  []byte
		sent   int
	}{
		{"whole and without a marker: it is hashed, not fetched", data, 0},
		{"cut off by a crash of the machine", data[:1000], len(data)},
		{"other bytes under a good name", make([]byte, len(data)), len(data)},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			dir := t.TempDir()
			cache := openTestCache(t, dir, 0)
			write(t, filepath.Join(dir, blobPath(keyOf(digestOf(data)))), tc.spoil)
			before := h.servedBytes("a")
			r := newRig(t, h, t.TempDir(), with(cache))
			if err := r.Run(t.Context()); err != nil || !bytes.Equal(r.read(t, "a"), data) {
				t.Errorf("Run() = %v, want the right file", err)
			}
			if got := h.servedBytes("a") - before; got != int64(tc.sent) {
				t.Errorf("hub sent %d bytes, want %d", got, tc.sent)
			}
		})
	}
}

// A cached file's bytes change, but not its size or modification time.
func TestTamperedCacheIsNotServed(t *testing.T) {
	data := noise(4 << 20)
	h := newFakeHub(t, map[string][]byte{"a": data})
	given := func(c *Config) { c.SHA256 = map[string]hub.Digest{"a": digestOf(data)} }
	for _, tc := range []struct {
		reason string
		// at are the offsets of changed bytes.
		at      int64
		whole   bool
		isFound bool
	}{
		{"at the start", 0, false, true},
		{"at the end", int64(len(data)) - 1, false, true},
		{"between two blocks of the sample", 100 << 10, false, false},
		{"between two blocks, where all is hashed", 100 << 10, true, true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			dir := t.TempDir()
			first := openTestCache(t, dir, 0)
			if err := newRig(t, h, t.TempDir(), with(first), given).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			blob := filepath.Join(dir, blobPath(keyOf(digestOf(data))))
			tamper(t, blob, tc.at)
			use := func(limit time.Duration) ([]byte, error) {
				cache := openTestCache(t, dir, 0)
				cache.verifiesWhole = tc.whole
				r := newRig(t, h, t.TempDir(), with(cache), given, func(c *Config) { c.GiveUpAfter = limit })
				if err := r.Run(t.Context()); err != nil {
					return nil, err
				}
				return r.read(t, "a"), nil
			}
			if _, err := use(time.Second); tc.isFound != errors.Is(err, errSpoilt) {
				t.Errorf("Run() while another pod uses the file = %v, want it found spoilt: %t", err, tc.isFound)
			}
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			got, err := use(time.Minute)
			if err != nil || bytes.Equal(got, data) != tc.isFound {
				t.Errorf("Run() = %v, whole file %t, want %t", err, bytes.Equal(got, data), tc.isFound)
			}
		})
	}
}

// tamper changes a byte of a settled file, but nothing that a directory listing shows.
func tamper(t *testing.T, path string, at int64) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	_, readErr := f.ReadAt(b, at)
	_, writeErr := f.WriteAt([]byte{^b[0]}, at)
	if err := errors.Join(readErr, writeErr, f.Close(), os.Chtimes(path, info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
}

func TestCacheEvicts(t *testing.T) {
	const size = 1 << 20
	old, used, recent, fresh := noise(size), noise(size+1), noise(size+2), noise(size+3)
	h := newFakeHub(t, map[string][]byte{"new": fresh})
	age := func(t *testing.T, dir string, content []byte, by time.Duration) {
		t.Helper()
		key := keyOf(digestOf(content))
		write(t, filepath.Join(dir, blobPath(key)), content)
		lock := filepath.Join(dir, locksDir, key)
		write(t, lock, nil)
		when := time.Now().Add(time.Hour - by)
		if err := os.Chtimes(lock, when, when); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		reason string
		limit  int64
		want   []bool // whether old, used, recent and new exist at the end
	}{
		{"enough room", 5 * size, []bool{true, true, true, true}},
		{"what was not used for longest goes", 4*size - 100, []bool{false, true, true, true}},
		{"never what is in use or was a moment ago: the file is fetched past the cache", 2 * size, []bool{false, true, true, false}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			dir := t.TempDir()
			cache, other := openTestCache(t, dir, tc.limit), openTestCache(t, dir, tc.limit)
			age(t, dir, old, 3*time.Hour)
			age(t, dir, used, 4*time.Hour)
			age(t, dir, recent, time.Minute)
			if holds, err := other.hold(keyOf(digestOf(used))); err != nil || !holds {
				t.Fatalf("hold() = %t, %v", holds, err)
			}
			then := time.Now().Add(-3 * time.Hour)
			if err := os.Chtimes(filepath.Join(dir, locksDir, keyOf(digestOf(used))), then, then); err != nil {
				t.Fatal(err)
			}
			r := newRig(t, h, t.TempDir(), with(cache))
			if err := r.Run(t.Context()); err != nil || !bytes.Equal(r.read(t, "new"), fresh) {
				t.Fatalf("Run() = %v, want the file", err)
			}
			var got []bool
			for _, content := range [][]byte{old, used, recent, fresh} {
				_, err := os.Stat(filepath.Join(dir, blobPath(keyOf(digestOf(content)))))
				got = append(got, err == nil)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("files there (-want +got):\n%s", diff)
			}
		})
	}
}

// If another pod stalls with a file, this pod does not wait forever.
func TestCacheOtherStalls(t *testing.T) {
	data := noise(1000)
	h := newFakeHub(t, map[string][]byte{"a": data})
	dir := t.TempDir()
	other := openTestCache(t, dir, 0)
	lock, err := other.lock(keyOf(digestOf(data)), true)
	if err != nil || lock == nil {
		t.Fatalf("lock() = %v, %v", lock, err)
	}
	defer func() { _ = lock.release() }()
	r := newRig(t, h, t.TempDir(), with(openTestCache(t, dir, 0)), func(c *Config) { c.GiveUpAfter = time.Second })
	err = r.Run(t.Context())
	if got := explainFetch(err, source{}); !asIfWanted(err, new(*StalledError)) || !strings.Contains(got.Message, "another pod") {
		t.Errorf("Run() = %v, told as %q, want the other pod named", err, got.Message)
	}
}

// A disabled cache leaves links behind, and links are not files.
func TestCacheSwitchedOff(t *testing.T) {
	data := noise(1000)
	h := newFakeHub(t, map[string][]byte{"a": data})
	dir := t.TempDir()
	if err := newRig(t, h, dir, with(openTestCache(t, t.TempDir(), 0))).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, h, dir)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(dir + "/a"); err != nil || !info.Mode().IsRegular() || !bytes.Equal(r.read(t, "a"), data) {
		t.Errorf("a is %v (%v), want the file itself", info, err)
	}
}

// The engine has its own directory in the cache. The cache never evicts it.
func TestDirectoryForTheEngine(t *testing.T) {
	dir, cache := volumeDir(t), t.TempDir()
	const kept = "compiled/vllm-1/model/gpu"
	write(t, dir+"/a", []byte("weights"))
	p := startPod(t, dir, "--cache", cache, "--cache-directory", kept, "verify", "--dest", dir, "--file", "a")
	waitUntil(t, "the file was seen", func() bool { return status(t, p.address(t)+"/startupz") == 200 })
	if info, err := os.Stat(cache + "/" + kept); err != nil || !info.IsDir() {
		t.Errorf("%v, %v", info, err)
	}
	end(t, p)
	out := startPod(t, dir, "--cache", cache, "--cache-directory", "../elsewhere", "verify", "--dest", dir, "--file", "a")
	if code := out.exitCode(t); code != exitUsage {
		t.Errorf("exit code %d for a directory outside the cache, want %d", code, exitUsage)
	}
}
