// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/modelberth/modelberth/test/vllmsim/launch"
	"github.com/modelberth/modelberth/test/vllmsim/server"
)

const defaultPort = 8000

// listen opens the port and serves until the process ends.
func (p *process) listen(ctx context.Context) error {
	a := p.setup.Args
	handler, counted, err := p.handler()
	if err != nil {
		return err
	}
	if err := p.publishEvents(ctx); err != nil {
		return err
	}
	address := net.JoinHostPort(a.Text("host", ""), strconv.FormatInt(a.Int("port", defaultPort), 10))
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return &launch.Error{Kind: "OSError", Message: fmt.Sprintf("[Errno 98] Address already in use: %v", err)}
	}
	p.log.info("APIServer", "launcher.py", "Starting vLLM server on http://%s", address)
	fmt.Fprintln(&p.log, "INFO:     Application startup complete.")
	aborted, abort := context.WithCancel(ctx)
	defer abort()
	const headers = 60 * time.Second
	httpServer := &http.Server{
		Handler: counted, ReadHeaderTimeout: headers,
		BaseContext: func(net.Listener) context.Context { return aborted },
	}
	served := make(chan error, 1)
	go func() { served <- httpServer.Serve(listener) }()
	if r, found := p.script.take("ready", 0); found {
		time.AfterFunc(r.after, func() { p.strike(r, handler.Freeze) })
	}
	select {
	case err := <-served:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
		// The engine is dead: the server reports it to all clients, and ends.
		handler.Fail()
		abort()
		_ = httpServer.Close()
		return context.Cause(ctx)
	case <-p.signals:
		return p.shutDown(ctx, httpServer, abort)
	}
}

// shutDown cuts off the requests in flight at once, or after --shutdown-timeout.
func (p *process) shutDown(ctx context.Context, httpServer *http.Server, abort context.CancelFunc) error {
	seconds := p.setup.Args.Int("shutdown-timeout", 0)
	p.log.info("APIServer", "launcher.py", "Waiting up to %d seconds for processes to exit", seconds)
	if seconds > 0 {
		limited, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
		defer cancel()
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			// The rest is cut off below.
			_ = httpServer.Shutdown(limited)
		}()
		select {
		case <-drained:
		case <-p.signals:
		}
	}
	abort()
	_ = httpServer.Close()
	p.log.info("APIServer", "launcher.py", "Shutting down.")
	return nil
}

// stepTimeout is the default of VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS.
const stepTimeout = 300

func (p *process) timing() (server.Timing, error) {
	first, err := duration(p.env, "VLLMSIM_TTFT")
	if err != nil {
		return server.Timing{}, err
	}
	each, err := duration(p.env, "VLLMSIM_ITL")
	if err != nil {
		return server.Timing{}, err
	}
	seconds, err := strconv.Atoi(p.env["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"])
	if err != nil {
		seconds = stepTimeout
	}
	return server.Timing{FirstToken: first, EachToken: each, Step: time.Duration(seconds) * time.Second}, nil
}

// handler returns the server, and it once more counting generations for the script.
func (p *process) handler() (*server.Server, http.Handler, error) {
	timing, err := p.timing()
	if err != nil {
		return nil, nil, err
	}
	s, a := p.setup, p.setup.Args
	options := server.Options{
		Version: version, Names: s.Names, Root: a.Model, Adapters: map[string]string{},
		MaxLen: s.MaxLen, Sequences: s.MaxSeqs * s.Data, CacheTokens: s.Memory.CacheTokens * s.Data, CacheInfo: p.cacheInfo(),
		Vocabulary: s.Model.Words, VocabularySize: s.Model.Config.Vocabulary,
		Timing: timing, Step: p.step, Dead: p.dead, APIKeys: a.List("api-key"),
		ForceUsage: a.On("enable-force-include-usage", false), AutoTools: a.On("enable-auto-tool-choice", false),
		Quiet: strings.Split(a.Text("disable-access-log-for-endpoints", ""), ","), Log: &p.log,
	}
	if key := p.env["VLLM_API_KEY"]; key != "" && len(options.APIKeys) == 0 {
		options.APIKeys = []string{key}
	}
	if a.On("disable-uvicorn-access-log", false) {
		options.Log = nil
	}
	if a.On("enable-lora", false) {
		options.MaxAdapters = int(a.Int("max-loras", 1))
	}
	if launch.UpdatesAdapters(p.env) {
		p.log.info("APIServer", "api_router.py", "LoRA dynamic loading & unloading is enabled in the API server. "+
			"This should ONLY be used for local development!")
		options.LoadAdapter = s.AdapterComplaint
	}
	for _, adapter := range s.Adapters {
		options.Adapters[adapter.Name] = adapter.Path
	}
	handler := server.New(options)
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/completions") {
			p.count(handler.Freeze)
		}
		handler.ServeHTTP(w, r)
	})
	return handler, counted, nil
}

func (p *process) cacheInfo() string {
	s := p.setup
	return fmt.Sprintf(`block_size="16",cache_dtype=%q,enable_prefix_caching="%s",engine="0",gpu_memory_utilization="%v",`+
		`kv_cache_max_concurrency="%.2f",kv_cache_size_tokens="%d",num_gpu_blocks="%d"`,
		s.Args.Text("kv-cache-dtype", "auto"), map[bool]string{true: "True", false: "False"}[s.Args.On("enable-prefix-caching", true)],
		s.Utilization, s.Memory.Concurrency, s.Memory.CacheTokens, s.Memory.Blocks)
}

func (p *process) step(ctx context.Context) error {
	if p.leader == nil {
		return nil
	}
	return p.leader.Step(ctx)
}

// dead ends the process: a step took too long.
func (p *process) dead() {
	p.log.failure("EngineCore", "core.py", "TimeoutError: RPC call to execute_model timed out.")
	p.end(&launch.Error{Kind: "vllm.v1.engine.exceptions.EngineDeadError", Message: "EngineCore encountered an issue. See stack trace (above) for the root cause."})
}

// publishEvents opens the port of the KV cache's events. Nothing is published: subscribers connect and wait.
func (p *process) publishEvents(ctx context.Context) error {
	var config struct {
		Enabled   bool   `json:"enable_kv_cache_events"`
		Publisher string `json:"publisher"`
		Endpoint  string `json:"endpoint"`
	}
	text := p.setup.Args.Text("kv-events-config", "")
	if text == "" || text == "None" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return &launch.Error{Kind: "ValueError", Message: "kv-events-config: " + err.Error()}
	}
	if !config.Enabled || config.Publisher == "null" {
		return nil
	}
	address, found := strings.CutPrefix(config.Endpoint, "tcp://")
	if !found {
		return nil
	}
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", strings.Replace(address, "*", "", 1))
	if err != nil {
		return &launch.Error{Kind: "zmq.error.ZMQError", Message: fmt.Sprintf("Address already in use (addr='%s')", config.Endpoint)}
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
		}
	}()
	return nil
}
