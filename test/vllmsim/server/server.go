// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server answers HTTP as vLLM's OpenAI-compatible server does: its routes, errors, streams and metric names,
// with invented answers, the same every time.
//
// It decides a client's view. It must not know flags, files or other machines: a token's cost and its completion on
// all ranks come from outside.
package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options configure a server.
type Options struct {
	// Version of vLLM.
	Version string
	// Names are the model's names in requests, the main one first; Root is its directory. Adapters maps the name of each
	// adapter to its directory.
	Names    []string
	Root     string
	Adapters map[string]string
	// MaxLen is the context, Sequences run at once, CacheTokens fit into the cache.
	MaxLen, Sequences, CacheTokens int
	// CacheInfo are the labels of vllm:cache_config_info.
	CacheInfo string
	// MaxAdapters is 0 if there can be none.
	MaxAdapters int
	// LoadAdapter is for the routes that load and unload adapters; nil if the server lacks them. It returns the complaint
	// about an adapter's files; empty if there is none.
	LoadAdapter func(path string) string
	// Vocabulary by text, and its size.
	Vocabulary     map[string]int
	VocabularySize int
	Timing         Timing
	// Step makes all ranks compute; Dead is called when one did not.
	Step func(context.Context) error
	Dead func()
	// APIKeys protect /v1, unless there are none.
	APIKeys []string
	// ForceUsage adds the usage to every stream, AutoTools allows tool_choice auto.
	ForceUsage, AutoTools bool
	// Quiet routes are not logged to Log.
	Quiet []string
	Log   io.Writer
}

// Server is an http.Handler. Make one with New.
type Server struct {
	options  Options
	adapters adapters
	engine   *engine
	metrics  *metrics
	tokens   tokenizer
	mux      *http.ServeMux
	failed   atomic.Bool
	freeze   sync.Once
	requests atomic.Int64
	began    time.Time
}

// New returns a ready server.
func New(o Options) *Server {
	s := &Server{options: o, metrics: newMetrics(), tokens: newTokenizer(o.Vocabulary, o.VocabularySize), began: time.Now()}
	s.metrics.modelName, s.metrics.cacheInfo = o.Names[0], o.CacheInfo
	s.metrics.cacheTokens, s.metrics.maxAdapters = o.CacheTokens, o.MaxAdapters
	s.engine = &engine{
		slots: make(chan struct{}, o.Sequences), metrics: s.metrics, timing: o.Timing, step: o.Step, dead: o.Dead,
		frozen: make(chan struct{}), words: s.tokens.words(),
	}
	s.adapters.paths = maps.Clone(o.Adapters)
	s.mux = http.NewServeMux()
	s.mux.HandleFunc("GET /health", s.serveHealth)
	s.mux.HandleFunc("/ping", s.serveHealth)
	s.mux.HandleFunc("GET /load", func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, map[string]int{"server_load": 0}) })
	s.mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, map[string]string{"version": o.Version}) })
	s.mux.HandleFunc("GET /metrics", s.serveMetrics)
	s.mux.HandleFunc("GET /v1/models", s.serveModels)
	s.mux.HandleFunc("POST /v1/completions", s.serveCompletions)
	s.mux.HandleFunc("POST /v1/chat/completions", s.serveChat)
	s.mux.HandleFunc("POST /tokenize", s.serveTokenize)
	if o.LoadAdapter != nil {
		s.routeAdapters()
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusNotFound, map[string]string{"detail": "Not Found"})
	})
	return s
}

// Freeze makes the engine hang: its server still answers requests without need of an engine, like vLLM's.
func (s *Server) Freeze() { s.freeze.Do(func() { close(s.engine.frozen) }) }

// Fail makes /health report a dead engine.
func (s *Server) Fail() { s.failed.Store(true) }

// ServeHTTP checks the key, answers and logs.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := &recorder{ResponseWriter: w, status: http.StatusOK}
	if s.isForbidden(r) {
		reply(out, http.StatusUnauthorized, map[string]string{"error": "Unauthorized"})
	} else {
		s.mux.ServeHTTP(out, r)
	}
	if s.options.Log != nil && !slices.Contains(s.options.Quiet, r.URL.Path) {
		fmt.Fprintf(s.options.Log, "INFO:     %s - \"%s %s HTTP/1.1\" %d %s\n",
			r.RemoteAddr, r.Method, r.URL.RequestURI(), out.status, http.StatusText(out.status))
	}
}

func (s *Server) isForbidden(r *http.Request) bool {
	if len(s.options.APIKeys) == 0 || !strings.HasPrefix(r.URL.Path, "/v1") {
		return false
	}
	key, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return !found || !slices.Contains(s.options.APIKeys, key)
}

// recorder remembers the status.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	if s.failed.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (s *Server) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	s.metrics.write(w)
}

type modelCard struct {
	ID      string  `json:"id"`
	Object  string  `json:"object"`
	Created int64   `json:"created"`
	OwnedBy string  `json:"owned_by"`
	Root    string  `json:"root"`
	Parent  *string `json:"parent"`
	MaxLen  *int    `json:"max_model_len"`
}

func (s *Server) serveModels(w http.ResponseWriter, _ *http.Request) {
	o := s.options
	cards := []modelCard{}
	card := modelCard{Object: "model", Created: s.began.Unix(), OwnedBy: "vllm"}
	for _, name := range o.Names {
		card.ID, card.Root, card.MaxLen = name, o.Root, &o.MaxLen
		cards = append(cards, card)
	}
	for _, adapter := range s.adapters.list() {
		card.ID, card.Root, card.Parent, card.MaxLen = adapter.name, adapter.path, &o.Names[0], nil
		cards = append(cards, card)
	}
	reply(w, http.StatusOK, map[string]any{"object": "list", "data": cards})
}

// apiError is an error in OpenAI's form.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"`
}

func badRequest(param, format string, a ...any) *apiError {
	e := &apiError{Message: fmt.Sprintf(format, a...), Type: "BadRequestError", Code: http.StatusBadRequest}
	if param != "" {
		e.Param = &param
	}
	return e
}

func refuse(w http.ResponseWriter, e *apiError) {
	reply(w, e.Code, map[string]*apiError{"error": e})
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A caller who left early is no failure of ours.
	_ = json.NewEncoder(w).Encode(v)
}

// findModel returns the name's part in the seed of answers: nothing for the model itself.
func (s *Server) findModel(name string) (string, *apiError) {
	if name == "" || slices.Contains(s.options.Names, name) {
		return "", nil
	}
	if s.adapters.has(name) {
		return name, nil
	}
	param := "model"
	return "", &apiError{
		Message: "The model `" + name + "` does not exist.", Type: "NotFoundError", Param: &param, Code: http.StatusNotFound,
	}
}

const maxBody = 64 << 20

func decode(w http.ResponseWriter, r *http.Request, v any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(v); err != nil {
		refuse(w, &apiError{Message: "1 validation error:\n  JSON decode error: " + err.Error(), Type: "Bad Request", Code: 400})
		return false
	}
	return true
}

func (s *Server) serveTokenize(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Model    string    `json:"model"`
		Prompt   string    `json:"prompt"`
		Messages []message `json:"messages"`
	}
	if !decode(w, r, &body) {
		return
	}
	if _, e := s.findModel(body.Model); e != nil {
		refuse(w, e)
		return
	}
	text := body.Prompt
	if len(body.Messages) > 0 {
		text = render(body.Messages)
	}
	ids := s.tokens.encode(text)
	reply(w, http.StatusOK, map[string]any{"count": len(ids), "max_model_len": s.options.MaxLen, "tokens": ids, "token_strs": nil})
}
