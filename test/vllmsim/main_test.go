// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// soon is the time to watch for a forbidden event, long the limit for a necessary one.
const (
	soon = 300 * time.Millisecond
	long = 30 * time.Second
)

// runMain makes this test's binary the program itself.
const runMain = "VLLMSIM_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
	}
	os.Exit(m.Run())
}

// output is a process's output so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// running is one process.
type running struct {
	t         *testing.T
	cmd       *exec.Cmd
	out, errs output
	ended     chan struct{}
	url       string
}

// launchIn starts a process; home is its writable directory, PORT in its arguments a port of its own.
func launchIn(t *testing.T, home string, env []string, arguments ...string) *running {
	t.Helper()
	port := freePort(t)
	r := &running{t: t, ended: make(chan struct{}), url: "http://127.0.0.1:" + port}
	line := []string{"serve"}
	for _, argument := range arguments {
		line = append(line, strings.ReplaceAll(argument, "PORT", port))
	}
	r.cmd = exec.CommandContext(t.Context(), os.Args[0], line...)
	r.cmd.Env = append([]string{runMain + "=1", "HOME=" + home, "USER=vllm", "NVIDIA_VISIBLE_DEVICES=GPU-0"}, env...)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.errs
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		_ = r.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.ended
		if t.Failed() {
			t.Logf("%v\n%s%s", line, r.out.String(), r.errs.String())
		}
	})
	return r
}

func start(t *testing.T, env []string, arguments ...string) *running {
	t.Helper()
	return launchIn(t, t.TempDir(), env, arguments...)
}

// end waits for the exit code.
func (r *running) end() int {
	r.t.Helper()
	select {
	case <-r.ended:
		return r.cmd.ProcessState.ExitCode()
	case <-time.After(long):
		r.t.Fatal("the process does not end")
		return -1
	}
}

func (r *running) signal(s os.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

func (r *running) health() (int, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), long)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/health", http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

// ready waits until the server is healthy.
func (r *running) ready() {
	r.t.Helper()
	for deadline := time.Now().Add(long); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if status, err := r.health(); err == nil && status == http.StatusOK {
			return
		}
		select {
		case <-r.ended:
			r.t.Fatalf("the process ended:\n%s%s", r.out.String(), r.errs.String())
		default:
		}
	}
	r.t.Fatal("the server is not ready")
}

func (r *running) says(want string) {
	r.t.Helper()
	for deadline := time.Now().Add(long); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if strings.Contains(r.out.String(), want) {
			return
		}
	}
	r.t.Fatalf("the log has no %q", want)
}

func (r *running) complete(ctx context.Context, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// model writes a model of one tensor.
func model(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	const header = `{"one":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}}`
	weights := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	weights = append(append(weights, header...), make([]byte, 8)...)
	for name, data := range map[string][]byte{
		"config.json": []byte(`{"architectures":["LlamaForCausalLM"],"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,
			"num_key_value_heads":2,"intermediate_size":384,"vocab_size":320,"max_position_embeddings":8192}`),
		"tokenizer.json":    []byte(`{"model":{"vocab":{}}}`),
		"model.safetensors": weights,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestServes(t *testing.T) {
	home := t.TempDir()
	env := []string{"VLLMSIM_LOAD=300ms", "VLLMSIM_COMPILE=1ms"}
	arguments := []string{
		model(t), "--served-model-name", "tiny", "org/tiny", "--host", "127.0.0.1", "--port", "PORT",
		"--disable-access-log-for-endpoints", "/health,/metrics",
	}
	p := launchIn(t, home, env, arguments...)
	p.says("Starting to load model")
	if _, err := p.health(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("while weights are loaded the port says %v, want it closed", err)
	}
	p.ready()
	resp, err := p.complete(t.Context(), `{"model":"org/tiny","prompt":"Hello"}`)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("completion: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	p.signal(syscall.SIGTERM)
	if code := p.end(); code != 0 {
		t.Errorf("SIGTERM ends it with %d", code)
	}
	for _, line := range []string{
		"Model loading took 0.0000 GiB memory and 0.300000 seconds", "Available KV cache memory: 71.60 GiB",
		"GPU KV cache size: 300,312,160 tokens, Maximum concurrency for 8,192 tokens per request: 36659.20x",
		"torch.compile takes", `"POST /v1/completions HTTP/1.1" 200 OK`,
	} {
		if !strings.Contains(p.out.String(), line) {
			t.Errorf("the log has no %q", line)
		}
	}
	if strings.Contains(p.out.String(), "GET /health") {
		t.Error("the log has a route that it must not have")
	}
	again := launchIn(t, home, env, arguments...)
	again.ready()
	if !strings.Contains(again.out.String(), "Directly load the compiled graph(s)") {
		t.Error("what was compiled is compiled again")
	}
}

func TestEndsAtOnce(t *testing.T) {
	dir := model(t)
	for _, tc := range []struct {
		reason    string
		env       []string
		arguments []string
		code      int
		want      string
	}{
		{"an unknown flag", nil, []string{dir, "--swap-space", "4"}, 2, "vllm: error: unrecognized arguments: --swap-space 4"},
		{"an exception", nil, []string{dir, "-tp", "2"}, 1, "ValueError: World size (2) is larger than the number of available GPUs (1)"},
		{"a place for caches that cannot be written", []string{"HOME=/proc"}, []string{dir}, 1, "Error: [Errno "},
		{"a script", []string{"VLLMSIM_SCRIPT=load exit=3 | last words"}, []string{dir}, 3, "last words\n"},
		{"a kill", []string{"VLLMSIM_SCRIPT=rank=0 start kill"}, []string{dir}, -1, ""},
		{"a script that is none", []string{"VLLMSIM_SCRIPT=load explode"}, []string{dir}, 1, `rule "load explode": "explode" is not a time, an action or a rank`},
		{"a duration that is none", []string{"VLLMSIM_LOAD=soon"}, []string{dir}, 1, `vllmsim: VLLMSIM_LOAD is "soon"`},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			p := start(t, tc.env, tc.arguments...)
			if code := p.end(); code != tc.code || !strings.Contains(p.errs.String(), tc.want) {
				t.Errorf("ends with %d and\n%s\nwant %d and\n%s", code, p.errs.String(), tc.code, tc.want)
			}
		})
	}
}

// A stream under way when SIGTERM comes.
func TestTermination(t *testing.T) {
	for _, tc := range []struct {
		reason, timeout string
		complete        bool
	}{
		{"is cut off", "0", false},
		{"may end", "20", true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			p := start(t, []string{"VLLMSIM_ITL=20ms"}, model(t), "--host", "127.0.0.1", "--port", "PORT", "--shutdown-timeout", tc.timeout)
			p.ready()
			resp, err := p.complete(t.Context(), `{"prompt":"Hello","stream":true,"max_tokens":30,"ignore_eos":true}`)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			lines := bufio.NewReader(resp.Body)
			if _, err := lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			p.signal(syscall.SIGTERM)
			rest, err := io.ReadAll(lines)
			if done := strings.HasSuffix(string(rest), "data: [DONE]\n\n"); done != tc.complete || (err == nil) != tc.complete {
				t.Errorf("the stream ends with error %v and\n%s", err, rest)
			}
			if code := p.end(); code != 0 {
				t.Errorf("ends with %d", code)
			}
		})
	}
}

func TestGroup(t *testing.T) {
	dir, master := model(t), freePort(t)
	member := func(rank int, env []string, more ...string) *running {
		return start(t, env, append([]string{
			dir, "--host", "127.0.0.1", "--port", "PORT", "-tp", "2", "--nnodes", "2", "--node-rank", fmt.Sprint(rank),
			"--master-addr", "127.0.0.1", "--master-port", master,
		}, more...)...)
	}
	leader := member(0, []string{"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1"})
	leader.says("world_size=2 rank=0")
	time.Sleep(soon)
	if _, err := leader.health(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a leader without its follower: %v", err)
	}
	follower := member(1, nil, "--headless")
	leader.ready()
	if _, err := follower.health(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the follower's port: %v, want it closed", err)
	}
	resp, err := leader.complete(t.Context(), `{"prompt":"Hello"}`)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("completion: %v, %v", resp, err)
	}
	_ = resp.Body.Close()

	follower.signal(syscall.SIGKILL)
	follower.end()
	time.Sleep(soon)
	if status, err := leader.health(); status != http.StatusOK {
		t.Errorf("a leader that lost its follower says %d, %v: it must not notice", status, err)
	}
	if resp, err := leader.complete(t.Context(), `{"prompt":"Hello"}`); err == nil {
		_ = resp.Body.Close()
		t.Errorf("a leader that lost its follower answers %d", resp.StatusCode)
	}
	if code := leader.end(); code != 1 || !strings.Contains(leader.errs.String(), "EngineDeadError") {
		t.Errorf("after a step that took too long it ends with %d", code)
	}
}

func TestGroupRefuses(t *testing.T) {
	dir, master := model(t), freePort(t)
	group := []string{"--host", "127.0.0.1", "--port", "PORT", "-tp", "2", "--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", master}
	leader := start(t, nil, append([]string{dir}, group...)...)
	follower := start(t, nil, append([]string{dir, "--headless", "--node-rank", "1", "--max-model-len", "4096"}, group...)...)
	for _, p := range []*running{leader, follower} {
		if code := p.end(); code != 1 || !strings.Contains(p.errs.String(), `max-model-len is not given on rank 0 and "4096" here`) {
			t.Errorf("ends with %d and\n%s", code, p.errs.String())
		}
	}
}

// A rule with once does not affect the next process.
func TestScriptHappensOnce(t *testing.T) {
	home, dir := t.TempDir(), model(t)
	env := []string{"VLLMSIM_SCRIPT=request=2 exit=7 once | CUDA error"}
	var codes []int
	for range 2 {
		p := launchIn(t, home, env, dir, "--host", "127.0.0.1", "--port", "PORT")
		p.ready()
		for range 2 {
			if resp, err := p.complete(t.Context(), `{"prompt":"Hello"}`); err == nil {
				_ = resp.Body.Close()
			}
		}
		if len(codes) > 0 {
			p.signal(syscall.SIGTERM)
		}
		codes = append(codes, p.end())
	}
	if diff := cmp.Diff([]int{7, 0}, codes); diff != "" {
		t.Errorf("exit codes (-want +got):\n%s", diff)
	}
}

func TestVersionIsThePresets(t *testing.T) {
	data, err := os.ReadFile("../../presets/engines/vllm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), "\n  version: "+version+"\n") {
		t.Errorf("presets/engines/vllm.yaml has another version than %s: compare flags.txt with that release", version)
	}
}

func TestParseScript(t *testing.T) {
	got, err := parseScript("rank=1 ready+2s kill once; request=3 exit=1 | CUDA error: bad; ; load hang")
	if err != nil {
		t.Fatal(err)
	}
	want := []rule{
		{rank: 1, when: "ready", after: 2 * time.Second, action: "kill", once: true},
		{rank: anyRank, when: "request", request: 3, action: "exit", code: 1, words: "CUDA error: bad"},
		{rank: anyRank, when: "load", action: "hang"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(rule{})); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}
