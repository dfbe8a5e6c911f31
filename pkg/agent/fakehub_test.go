// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/hub"
)

const (
	testRepo   = "org/model"
	testCommit = "0123456789abcdef0123456789abcdef01234567"
)

// fakeHub serves one repository and counts the sent bytes of its content. A fault gets every request first. It may
// answer the request, or limit the response.
type fakeHub struct {
	*httptest.Server
	mu       sync.Mutex
	files    map[string][]byte
	shas     map[string]string
	served   map[string]int64
	requests []string
	fault    func(w http.ResponseWriter, r *http.Request) (limit int64, answered bool)
}

const noLimit = int64(1) << 62

func newFakeHub(t *testing.T, files map[string][]byte) *fakeHub {
	t.Helper()
	h := &fakeHub{files: files, shas: map[string]string{}, served: map[string]int64{}}
	for p, b := range files {
		h.shas[p] = sha256Hex(b)
	}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// noise returns content without repeated parts.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)}).Read(b)
	return b
}

func (h *fakeHub) setFault(f func(w http.ResponseWriter, r *http.Request) (int64, bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault = f
}

func (h *fakeHub) servedBytes(path string) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.served[path]
}

func (h *fakeHub) requestLog() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.requests...)
}

func (h *fakeHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.requests = append(h.requests, r.Method+" "+r.URL.Path)
	fault := h.fault
	h.mu.Unlock()
	limit := noLimit
	if fault != nil {
		l, answered := fault(w, r)
		if answered {
			return
		}
		limit = l
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, "/api/models/"+testRepo+"/"); ok {
		h.serveAPI(w, rest)
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/"+testRepo+"/resolve/"+testCommit+"/")
	data, exists := h.files[path]
	if !ok || !exists {
		w.Header().Set("X-Error-Code", "EntryNotFound")
		w.WriteHeader(http.StatusNotFound)
		return
	}
	h.serveFile(w, r, path, data, limit)
}

func (h *fakeHub) serveAPI(w http.ResponseWriter, rest string) {
	if strings.HasPrefix(rest, "revision/") {
		fmt.Fprintf(w, `{"sha":%q}`, testCommit)
		return
	}
	type entry map[string]any
	entries := []entry{}
	for p, b := range h.files {
		e := entry{"type": "file", "path": p, "size": len(b), "oid": gitBlob(b)}
		if h.shas[p] != "" {
			e["lfs"] = entry{"oid": h.shas[p], "size": len(b)}
		}
		entries = append(entries, e)
	}
	_ = json.NewEncoder(w).Encode(entries)
}

func gitBlob(b []byte) string {
	h := hub.Digest{Algorithm: hub.GitBlob}.NewHash(int64(len(b)))
	h.Write(b)
	return hex.EncodeToString(h.Sum(nil))
}

func (h *fakeHub) serveFile(w http.ResponseWriter, r *http.Request, path string, data []byte, limit int64) {
	w.Header().Set("X-Repo-Commit", testCommit)
	if h.shas[path] != "" {
		w.Header().Set("X-Linked-Etag", `"`+h.shas[path]+`"`)
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(data)))
	}
	out := &countingWriter{ResponseWriter: w, hub: h, path: path, left: limit}
	http.ServeContent(out, r, "", time.Time{}, bytes.NewReader(data))
}

// countingWriter cuts the connection once left bytes of content have been sent.
type countingWriter struct {
	http.ResponseWriter
	hub  *fakeHub
	path string
	left int64
}

func (w *countingWriter) Write(b []byte) (int, error) {
	cut := int64(len(b)) > w.left
	if cut {
		b = b[:w.left]
	}
	n, err := w.ResponseWriter.Write(b)
	w.left -= int64(n)
	w.hub.mu.Lock()
	w.hub.served[w.path] += int64(n)
	w.hub.mu.Unlock()
	if cut {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// patient is the limit on silence in tests about other faults. It is long, because a busy machine is silent, too.
const patient = 10 * time.Second

// newClient returns a client that accepts silence for the given time.
func newClient(t *testing.T, h *fakeHub, idle time.Duration) *hub.Client {
	t.Helper()
	client, err := hub.New(hub.Options{Endpoint: h.URL, HTTP: hub.NewHTTPClient(8), IdleTimeout: idle})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// rig is a Fetcher with its own directory and short pauses.
type rig struct {
	*Fetcher
	dir string
}

func newRig(t *testing.T, h *fakeHub, dir string, change ...func(*Config)) rig {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	c := Config{
		Hub: newClient(t, h, patient), Root: root, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
		Repo: testRepo, Revision: "main", Connections: 4, GiveUpAfter: 5 * time.Second,
	}
	for p := range h.files {
		c.Files = append(c.Files, p)
	}
	for _, f := range change {
		f(&c)
	}
	f := New(c)
	f.stall.pause = func() backoff.BackOff { return backoff.NewConstantBackOff(time.Millisecond) }
	return rig{Fetcher: f, dir: dir}
}

// Run runs the Fetcher, including Settle.
func (r rig) Run(ctx context.Context) error {
	if err := r.Fetcher.Run(ctx); err != nil {
		return err
	}
	return r.Settle(ctx)
}

func (r rig) read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(r.dir + "/" + path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func isContent(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/resolve/")
}
