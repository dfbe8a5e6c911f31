// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/agent/fetch"
)

// TestMain lets the test binary stand in for the program, so that tests can kill it for real.
func TestMain(m *testing.M) {
	if os.Getenv("AGENT_UNDER_TEST") != "1" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	code := Main(ctx, os.Args[1:], os.Getenv, os.Stderr)
	stop()
	os.Exit(code)
}

// process is the program under test, with its log.
type process struct {
	*exec.Cmd
	dir string
	mu  sync.Mutex
	log bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// start runs the program with one target; args are flags of the pod up to the first --file or --weights.
func start(t testing.TB, dir string, args ...string) *process {
	t.Helper()
	at := slices.IndexFunc(args, func(a string) bool { return a == "--file" || a == "--weights" })
	return startPod(t, dir, slices.Concat(args[:at], []string{"fetch", "--repo", testRepo, "--dest", dir}, args[at:])...)
}

func startPod(t testing.TB, dir string, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args = slices.Concat([]string{"--listen", "127.0.0.1:0", "--termination-log", dir + "/../log"}, args)
	p := &process{Cmd: exec.CommandContext(t.Context(), exe, args...), dir: dir}
	p.Env = append(os.Environ(), "AGENT_UNDER_TEST=1", "HF_TOKEN=hf_secret", "HF_ENDPOINT=", "POD_UID="+filepath.Base(filepath.Dir(dir)), "GOCOVERDIR="+t.TempDir())
	p.Stderr = p
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if strings.Contains(p.text(), "hf_secret") {
			t.Errorf("the log shows the token:\n%s", p.text())
		}
	})
	return p
}

func (p *process) address(t *testing.T) string {
	t.Helper()
	var found []string
	waitUntil(t, "the program listens", func() bool {
		found = regexp.MustCompile(`"address":"([^"]+)"`).FindStringSubmatch(p.text())
		return found != nil
	})
	return "http://" + found[1]
}

func (p *process) exitCode(t testing.TB) int {
	t.Helper()
	done := make(chan struct{})
	go func() { _ = p.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("the program does not end:\n%s", p.text())
	}
	return p.ProcessState.ExitCode()
}

func status(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func volumeDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir() + "/models"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The program is killed half-way and restarted. The file is correct, its name never had partial content, and less than
// one percent of the received bytes is fetched twice.
func TestKilledHalfWay(t *testing.T) {
	data := noise(128 << 20)
	half := int64(len(data))/2 + 300_001
	h := newFakeHub(t, map[string][]byte{"a.gguf": data})
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	// The connections together get half of the file, not a round number, and then wait for the gate.
	sent := new(atomic.Int64)
	h.setFault(func(w http.ResponseWriter, r *http.Request) (int64, bool) {
		if !isContent(r) {
			return noLimit, false
		}
		h.serveFile(gatedWriter{w, half, sent, gate}, r, "a.gguf", data, noLimit)
		return 0, true
	})
	dir := volumeDir(t)
	stop := watchName(t, dir+"/a.gguf", data)
	defer stop()
	first := start(t, dir, "--endpoint", h.URL, "--connections", "2", "--file", "a.gguf")
	address := first.address(t)
	waitUntil(t, "half is there", func() bool { return progressOf(t, address).Bytes == half })
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.exitCode(t)
	lost := half - noted(dir+"/a.gguf")
	t.Logf("lost: %d of %d bytes, %.2f %%", lost, len(data), 100*float64(lost)/float64(len(data)))
	if lost > int64(len(data)/100) {
		t.Errorf("%d bytes had arrived in vain, want at most a percent of %d", lost, len(data))
	}
	open()
	h.setFault(nil)
	before := h.servedBytes("a.gguf")
	second := start(t, dir, "--endpoint", h.URL, "--file", "a.gguf")
	address = second.address(t)
	waitUntil(t, "the file is ready", func() bool { return status(t, address+"/startupz") == http.StatusOK })
	if got, err := os.ReadFile(dir + "/a.gguf"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("content differs (%v)", err)
	}
	if again := h.servedBytes("a.gguf") - before; again != int64(len(data))-half+lost {
		t.Errorf("%d bytes were fetched after the restart, want %d: only what was missing", again, int64(len(data))-half+lost)
	}
	end(t, second)
}

// gatedWriter writes some bytes, counted over all writers with the same sent, and the rest once the gate opens.
type gatedWriter struct {
	http.ResponseWriter
	free int64
	sent *atomic.Int64
	gate <-chan struct{}
}

func (w gatedWriter) Write(b []byte) (int, error) {
	left := w.free - w.sent.Add(int64(len(b))) + int64(len(b))
	if left <= 0 {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		<-w.gate
		return 0, io.ErrClosedPipe
	}
	return w.ResponseWriter.Write(b[:min(left, int64(len(b)))])
}

func progressOf(t *testing.T, address string) (p fetch.Progress) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/progress", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		t.Fatal(err)
	}
	return p
}

// slowWriter sends the first bytes at once, and the rest once the gate opens.
type slowWriter struct {
	http.ResponseWriter
	free int
	sent *int
	gate <-chan struct{}
}

func (w slowWriter) Write(b []byte) (int, error) {
	if *w.sent += len(b); *w.sent > w.free {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		<-w.gate
		return 0, io.ErrClosedPipe
	}
	return w.ResponseWriter.Write(b)
}

func noted(file string) int64 {
	data, err := os.ReadFile(file + stateSuffix)
	if err != nil {
		return 0
	}
	s, err := decodeState(data)
	if err != nil {
		return 0
	}
	return s.Done.sum()
}

func end(t *testing.T, p *process) {
	t.Helper()
	began := time.Now()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.exitCode(t); code != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0:\n%s", code, p.text())
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("SIGTERM took %s, want at once", took)
	}
}

func TestRunsUntilCancelled(t *testing.T) {
	h := newFakeHub(t, map[string][]byte{"a": noise(1000), "b/c": noise(2000)})
	p := start(t, volumeDir(t), "--endpoint", h.URL, "--file", "a", "--file", "b/c")
	address := p.address(t)
	waitUntil(t, "the files are ready", func() bool { return status(t, address+"/startupz") == http.StatusOK })
	if got := status(t, address+"/healthz"); got != http.StatusOK {
		t.Errorf("/healthz = %d", got)
	}
	end(t, p)
	if _, err := os.Stat(p.dir + "/../log"); err == nil {
		t.Error("a termination message was left although nothing failed")
	}
}

func TestSIGTERMHalfWay(t *testing.T) {
	h := newFakeHub(t, map[string][]byte{"a": noise(1000)})
	h.setFault(func(_ http.ResponseWriter, r *http.Request) (int64, bool) {
		<-r.Context().Done()
		return 0, true
	})
	p := start(t, volumeDir(t), "--endpoint", h.URL, "--file", "a")
	address := p.address(t)
	if got := status(t, address+"/startupz"); got != http.StatusServiceUnavailable {
		t.Errorf("/startupz = %d while the hub is silent, want 503", got)
	}
	end(t, p)
}

func TestGivesUp(t *testing.T) {
	for _, tc := range []struct {
		reason string
		fault  func(w http.ResponseWriter, r *http.Request) (int64, bool)
		args   []string
		code   int
		want   *Termination // with the endpoint as HUB
	}{
		{
			"a gated model", refuse(403, "GatedRepo"),
			[]string{"--file", "a"},
			1,
			&Termination{ReasonUnauthorized, `HUB refused "org/model" at revision "main" with status 403: accept the model's conditions on the model's page with the account that the token belongs to`},
		},
		{
			"a file that is not there", nil,
			[]string{"--file", "nope"},
			1,
			&Termination{ReasonNotFound, `HUB has no file "nope" in "org/model" at revision "main": correct the file's name or the revision`},
		},
		{
			"a hub that is down", refuse(503, ""),
			[]string{"--give-up-after", "700ms", "--file", "a"},
			1,
			&Termination{ReasonHubUnreachable, `fetching "org/model" at revision "main" from HUB made no progress for 700ms (HUB answered with status 503): check that the hub is up, that its URL (chart value hub.endpoint) is right, and that the pod's network allows connections to it`},
		},
		{"wrong arguments", nil, []string{"--file", "../a"}, 2, nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			h := newFakeHub(t, map[string][]byte{"a": noise(1000)})
			h.setFault(tc.fault)
			p := start(t, volumeDir(t), append([]string{"--endpoint", h.URL}, tc.args...)...)
			if code := p.exitCode(t); code != tc.code {
				t.Errorf("exit code %d, want %d:\n%s", code, tc.code, p.text())
			}
			data, err := os.ReadFile(p.dir + "/../log")
			if tc.want == nil {
				if err == nil {
					t.Errorf("termination message %s, want none", data)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got Termination
			if err := json.Unmarshal(data, &got); err != nil {
				t.Fatal(err)
			}
			tc.want.Message = strings.ReplaceAll(tc.want.Message, "HUB", h.URL)
			if diff := cmp.Diff(*tc.want, got); diff != "" {
				t.Errorf("termination message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		reason string
		args   []string
		code   int
	}{
		{"a flag that is none", []string{"--what"}, 2},
		{"another command", []string{"push"}, 2},
		{"help", []string{"--help"}, 0},
		{"help of a verb", []string{"fetch", "--help"}, 0},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			var out bytes.Buffer
			if code := Main(t.Context(), tc.args, env(), &out); code != tc.code || out.Len() == 0 {
				t.Errorf("Main(%q) = %d with %q, want %d and some words", tc.args, code, out.String(), tc.code)
			}
		})
	}
}
