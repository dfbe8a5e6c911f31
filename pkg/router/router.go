// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package router is the front door of all models: one HTTP address, where the name in a request selects the model. It
// passes each request to a replica of the model, and streams the answer back. Its own answers have the format of
// OpenAI's API.
//
// It decides the order of the steps of a request, and which failures it retries. The packages below decide on the
// replica, the model and the client. It must not know Kubernetes: a Directory has the models.
package router

import (
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/router/balance"
	"github.com/modelberth/modelberth/pkg/router/hold"
	"github.com/modelberth/modelberth/pkg/router/limit"
	"github.com/modelberth/modelberth/pkg/router/models"
	"github.com/modelberth/modelberth/pkg/router/resume"
	"github.com/modelberth/modelberth/pkg/router/tokens"
)

// Directory has the current models.
type Directory interface {
	Models() *models.Table
	// Next returns the current table, and a channel that is closed when a new table replaces it.
	Next() (*models.Table, <-chan struct{})
}

// Settings are the settings of the router.
type Settings struct {
	// MaxBody is the maximum size of a request's body, in bytes.
	MaxBody int64
	// BodyBudget is the memory for the bodies of all requests, including the edited copies, in bytes.
	BodyBudget int64
	// BodyTimeout is how long a client may take to send a body.
	BodyTimeout time.Duration
	// Deadline is the longest time from the start of a request to the end of its answer.
	Deadline time.Duration
	// DialTimeout is the longest time to connect to a replica.
	DialTimeout time.Duration
	// Retries is how many more replicas a request may try after the first one.
	Retries int
	// IsOpen: clients need no key.
	IsOpen bool
	// Resumes: if the replica of a stream dies, another one continues the stream.
	Resumes bool
	// ResumeMemory is the memory for the texts of all streams that can be continued, in bytes.
	ResumeMemory int64
	// Hold limits the requests that wait for a first replica.
	Hold hold.Limits
}

// Defaults returns the settings that the command starts with.
func Defaults() Settings {
	return Settings{
		MaxBody: 32 << 20, BodyBudget: 256 << 20, BodyTimeout: time.Minute, Deadline: 30 * time.Minute,
		DialTimeout: 2 * time.Second, Retries: 2, ResumeMemory: 64 << 20, Hold: hold.Limits{Bytes: 64 << 20, Time: 10 * time.Minute},
	}
}

// Router is the HTTP handler of the front door.
type Router struct {
	settings  Settings
	directory Directory
	keys      *limit.Keys
	anybody   *limit.Client
	counters  *balance.Counters
	metrics   *Metrics
	tallies   tallies
	demands   demands
	log       *slog.Logger
	clock     clock.WithTicker
	transport http.RoundTripper
	fresh     http.RoundTripper // a new connection for each request
	buffered  atomic.Int64
	resumable *resume.Memory
	room      *hold.Room
	waker     Waker
	tokens    *tokens.Tokens
	// uncheckedLog limits the log entries about tokens that could not be checked.
	uncheckedLog rate.Sometimes
}

// Parts are the parts of a router.
type Parts struct {
	Directory Directory
	Keys      *limit.Keys
	Counters  *balance.Counters
	Metrics   *Metrics
	Log       *slog.Logger
	Clock     clock.WithTicker
	// Waker may be nil. Then no request waits for a replica.
	Waker Waker
	// Tokens may be nil. Then clients need a key.
	Tokens *tokens.Tokens
}

// New returns a router.
func New(settings Settings, parts Parts) *Router {
	fresh := transport(settings)
	fresh.DisableKeepAlives = true
	return &Router{
		settings: settings, directory: parts.Directory, keys: parts.Keys, anybody: limit.Anybody(),
		counters: parts.Counters, metrics: parts.Metrics, log: parts.Log, clock: parts.Clock,
		transport: transport(settings), fresh: fresh,
		room: hold.New(settings.Hold), waker: parts.Waker, tokens: parts.Tokens,
		resumable:    resume.NewMemory(settings.ResumeMemory, fullLog(settings.ResumeMemory, parts.Log)),
		uncheckedLog: rate.Sometimes{Interval: time.Second},
	}
}

// fullLog returns a function that reports in the log, at most once per minute, when the memory for the texts of streams
// is full.
func fullLog(most int64, log *slog.Logger) func() {
	sometimes := rate.Sometimes{Interval: time.Minute}
	return func() {
		sometimes.Do(func() {
			log.Warn("the memory for streams that another replica could continue is full: raise --resume-memory-bytes", "bytes", most)
		})
	}
}

// idleTimeout is how long the router keeps an idle connection to a replica. The servers of vLLM (uvicorn) and llama.cpp
// (cpp-httplib) close idle connections after 5 s by default. A request that arrives at that moment is lost.
const idleTimeout = 4 * time.Second

// transport returns a transport to replicas. It ignores the environment's proxies, and does not decompress answers.
func transport(settings Settings) *http.Transport {
	dialer := &net.Dialer{Timeout: settings.DialTimeout, KeepAlive: 15 * time.Second}
	return &http.Transport{
		DialContext: dialer.DialContext, DisableCompression: true, ForceAttemptHTTP2: false,
		MaxIdleConns: 1024, MaxIdleConnsPerHost: 256, IdleConnTimeout: idleTimeout,
		MaxResponseHeaderBytes: 64 << 10, WriteBufferSize: 16 << 10, ReadBufferSize: 16 << 10,
	}
}

// Server returns an HTTP server with limits for slow clients and large headers. The router itself sets a deadline for
// the body.
func Server(handler http.Handler) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		Protocols: &protocols,
	}
}
