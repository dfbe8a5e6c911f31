// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package loader_test has the agent's part that loads adapters beside the stand-in for vLLM.
package loader_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/adapters"
	"github.com/modelberth/modelberth/pkg/agent/loader"
	"github.com/modelberth/modelberth/test/vllmsim/server"
)

// long is the limit for a necessary event.
const long = 20 * time.Second

const key = "secret"

// site is an engine, which may restart, and the agent's part beside it.
type site struct {
	t          *testing.T
	dir        string
	engine     *httptest.Server
	mu         sync.Mutex
	running    http.Handler
	guard      *httptest.Server
	fetchError error
	fetches    []string
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	running := s.running
	s.mu.Unlock()
	if running == nil {
		panic(http.ErrAbortHandler) // as if nothing listened
	}
	running.ServeHTTP(w, r)
}

// restart starts a new engine, without adapters; stop ends it.
func (s *site) restart() {
	s.set(server.New(server.Options{
		Version: "1", Names: []string{"base"}, Root: "/models", MaxLen: 64, Sequences: 8, CacheTokens: 1000, MaxAdapters: 4,
		Timing: server.Timing{Step: long}, Step: func(context.Context) error { return nil }, Dead: func() {},
		APIKeys: []string{key},
		LoadAdapter: func(path string) string {
			text, err := os.ReadFile(filepath.Join(path, "adapter_config.json"))
			switch {
			case err != nil:
				return "No adapter found for " + path
			case string(text) == "large":
				return "LoRA rank 64 is greater than max_lora_rank 16."
			}
			return ""
		},
	}))
}

func (s *site) set(h http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = h
}

func (s *site) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetchError = err
}

func (s *site) fetch(_ context.Context, a adapters.Adapter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetches = append(s.fetches, a.Name)
	if s.fetchError != nil {
		return s.fetchError
	}
	dir := filepath.Join(s.dir, "root", a.Name, a.Path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(a.Path), 0o600)
}

func (s *site) list(text string) {
	s.t.Helper()
	at := filepath.Join(s.dir, "list")
	if err := os.WriteFile(at+".new", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(at+".new", at); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) adapters(names ...string) {
	s.t.Helper()
	out := adapters.List{}
	for _, name := range names {
		out.Adapters = append(out.Adapters, adapters.Adapter{Name: name, Repository: "org/" + name})
	}
	s.list(out.Encode())
}

// start starts the agent's part. It returns a function that ends it.
func (s *site) start() (stop func()) {
	s.t.Helper()
	address, err := url.Parse(s.engine.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	keeper := loader.New(loader.Config{
		File: filepath.Join(s.dir, "list"), Root: filepath.Join(s.dir, "root"), Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
		Engine: loader.VLLM{URL: s.engine.URL, Key: key, Client: http.DefaultClient}, Fetch: s.fetch,
	})
	ctx, cancel := context.WithCancel(s.t.Context())
	var done sync.WaitGroup
	done.Go(func() { keeper.Run(ctx) })
	s.guard = httptest.NewServer(loader.Guard(address, "/health", key, keeper))
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			done.Wait()
			s.guard.Close()
		})
	}
	s.t.Cleanup(stop)
	return stop
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir()}
	s.engine = httptest.NewServer(s)
	t.Cleanup(s.engine.Close)
	return s
}

func (s *site) do(method, path, body string, authorized bool) (int, string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), long)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.guard.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if authorized {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func (s *site) answers(model string) bool {
	status, _ := s.do("POST", "/v1/completions", `{"model":"`+model+`","prompt":"x","max_tokens":1}`, true)
	return status == http.StatusOK
}

func (s *site) isHealthy() bool {
	status, _ := s.do("GET", adapters.ReadyPath, "", false)
	return status == http.StatusOK
}

func (s *site) eventually(what string, is func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(long); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			_, state := s.do("GET", adapters.StatePath, "", true)
			s.t.Fatalf("%s: not within %s; state %s", what, long, state)
		}
	}
}

// TestLife: a pod's adapters from its first list to a restart of its engine.
func TestLife(t *testing.T) {
	s := newSite(t)
	s.list(adapters.Pending)
	s.restart()
	s.start()
	for range 10 {
		if s.isHealthy() {
			t.Fatal("the pod is ready before it has a list")
		}
		time.Sleep(50 * time.Millisecond)
	}
	if status, _ := s.do("GET", "/health", "", false); status != http.StatusOK {
		t.Fatalf("the engine is healthy, and /health says %d: the kubelet would restart it", status)
	}
	s.adapters("one")
	s.eventually("the first adapter makes the pod ready", s.isHealthy)
	if !s.answers("one") {
		t.Fatal("the pod is ready without its adapter")
	}
	began := time.Now()
	s.adapters("one", "two")
	s.eventually("the second adapter", func() bool { return s.answers("two") })
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the second adapter took %s", took)
	}

	s.set(nil) // the engine crashes
	s.eventually("the crash is noticed", func() bool { return !s.isHealthy() })
	s.restart()
	s.eventually("the engine is ready again", s.isHealthy)
	if !s.answers("one") || !s.answers("two") {
		t.Fatal("a restarted engine is ready before its adapters are back")
	}

	removed := time.Now()
	s.adapters("two")
	s.eventually("the first adapter is unloaded", func() bool { return !s.answers("one") })
	if took := time.Since(removed); took < 4*time.Second {
		t.Errorf("the adapter was unloaded after %s, when routers may still use it", took)
	}
	if !s.isHealthy() || !s.answers("two") {
		t.Error("the other adapter is gone, too")
	}
}

// TestFailures: a new adapter that cannot be served affects no other one.
func TestFailures(t *testing.T) {
	s := newSite(t)
	s.adapters("one")
	s.restart()
	stop := s.start()
	s.eventually("ready", s.isHealthy)
	s.fail(errors.New("org/two does not exist"))
	s.adapters("one", "two")
	s.eventually("the failure is reported", func() bool {
		_, state := s.do("GET", adapters.StatePath, "", true)
		return strings.Contains(state, `{"loaded":["one"],"failed":{"two":"org/two does not exist"}}`)
	})
	if !s.isHealthy() || !s.answers("one") {
		t.Fatal("a failed adapter takes the pod away")
	}

	// The agent restarts: it has no memory of what was loaded, and the new adapter still fails.
	stop()
	s.start()
	s.eventually("the pod is ready with the adapters that it had", s.isHealthy)

	s.fail(nil)
	large := adapters.List{Adapters: []adapters.Adapter{{Name: "one", Repository: "org/one"}, {Name: "three", Repository: "org/three", Path: "large"}}}
	s.list(large.Encode())
	s.eventually("the engine's refusal is reported", func() bool {
		_, state := s.do("GET", adapters.StatePath, "", true)
		return strings.Contains(state, `"three":"the engine refuses: LoRA rank 64 is greater than max_lora_rank 16."`)
	})
	for _, broken := range []string{"", "{", adapters.Pending, `{"adapters":[{"name":"..","repository":"o/x"}]}`} {
		s.list(broken)
		time.Sleep(300 * time.Millisecond)
		if !s.isHealthy() || !s.answers("one") {
			t.Fatalf("the list %q takes adapters away", broken)
		}
	}
	s.adapters("one")
	s.eventually("ready", s.isHealthy)
}

// TestGuard: no client can change the adapters, however it writes the path.
// TestBusyEngine: an engine that misses a request is the same engine, so an adapter that it never had is still not
// required.
func TestBusyEngine(t *testing.T) {
	s := newSite(t)
	s.adapters()
	s.restart()
	engine := s.running
	s.start()
	s.eventually("ready", s.isHealthy)
	s.fail(errors.New("org/two does not exist"))
	s.adapters("two")
	s.eventually("the failure is reported", func() bool {
		_, state := s.do("GET", adapters.StatePath, "", true)
		return strings.Contains(state, "does not exist")
	})
	s.set(nil)
	time.Sleep(2500 * time.Millisecond) // longer than between two looks
	s.set(engine)
	s.eventually("ready without the adapter", s.isHealthy)
}

func TestGuard(t *testing.T) {
	s := newSite(t)
	s.adapters()
	s.restart()
	s.start()
	s.eventually("ready", s.isHealthy)
	const load, sagemaker = `{"lora_name":"evil","lora_path":"/etc"}`, `{"name":"evil","src":"/etc"}`
	for _, tc := range []struct{ method, path, body string }{
		{"POST", "/v1/load_lora_adapter", load},
		{"POST", "/v1/unload_lora_adapter", `{"lora_name":"one"}`},
		{"POST", "/v1/load%5Flora%5Fadapter", load},
		{"POST", "/%761/load_lora_adapter", load},
		{"POST", "/v1%2Fload_lora_adapter", load},
		{"POST", "//v1/load_lora_adapter", load},
		{"POST", "/v1/./load_lora_adapter", load},
		{"POST", "/v1/x/../load_lora_adapter", load},
		{"POST", "/v1/load_lora_adapter/", load},
		{"POST", "/root/v1/load_lora_adapter", load},
		{"POST", "/V1/LOAD_LORA_ADAPTER", load},
		{"POST", "/v1/load_lora_adapter?x=/health", load},
		{"POST", "/adapters", sagemaker},
		{"POST", "/%61dapters", sagemaker},
		{"DELETE", "/adapters/one", ""},
		{"PUT", "/root/adapters/one", ""},
	} {
		if status, _ := s.do(tc.method, tc.path, tc.body, true); status != http.StatusForbidden {
			t.Errorf("%s %s is answered %d", tc.method, tc.path, status)
		}
	}
	if status, _ := s.do("GET", adapters.StatePath, "", false); status != http.StatusUnauthorized {
		t.Errorf("the state without a key is answered %d", status)
	}
	for path, want := range map[string]int{"/version": 200, "/metrics": 200, "/v1/models": 200, "/nothing": 404} {
		if status, _ := s.do("GET", path, "", true); status != want {
			t.Errorf("GET %s is answered %d, want %d", path, status, want)
		}
	}
	if status, _ := s.do("GET", "/v1/models", "", false); status != http.StatusUnauthorized {
		t.Errorf("the guard adds its own key: %d", status)
	}
}

// TestChurn: while adapters come and go, the one that stays always answers.
func TestChurn(t *testing.T) {
	s := newSite(t)
	s.adapters("stays")
	s.restart()
	s.start()
	s.eventually("ready", s.isHealthy)
	ended := make(chan struct{})
	var failed []string
	var client sync.WaitGroup
	client.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				if status, body := s.do("POST", "/v1/completions", `{"model":"stays","prompt":"x","max_tokens":1}`, true); status != 200 {
					failed = append(failed, body)
				}
			}
		}
	})
	for i := range 20 {
		names := []string{"stays", "a", "b", "c"}
		s.adapters(names[:1+i%4]...)
		time.Sleep(150 * time.Millisecond)
	}
	s.adapters("stays", "a")
	s.eventually("the last list", func() bool { return s.answers("a") })
	close(ended)
	client.Wait()
	if len(failed) > 0 {
		t.Errorf("%d requests failed: %s", len(failed), failed[0])
	}
	if fetched := slices.Index(s.fetches, "stays"); fetched < 0 || slices.Contains(s.fetches[fetched+1:], "stays") {
		t.Errorf("the files of one adapter were fetched again: %v", s.fetches)
	}
}
