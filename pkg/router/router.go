// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package router is the front door: one address for all models, by the name in the request. It answers in OpenAI's
// shape, passes requests to a replica of the model, and passes answers back as they come.
//
// It decides the order of the steps of a request and which failures are tried again. The packages below decide on
// the replica, the model and the client. It must not know Kubernetes: a Directory has the models.
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
	// Next returns the table, and what is closed once there is another one.
	Next() (*models.Table, <-chan struct{})
}

// Settings of the data path.
type Settings struct {
	// MaxBody is the largest body of a request, in bytes.
	MaxBody int64
	// BodyBudget is the memory for the bodies of all requests, with the edited copies.
	BodyBudget int64
	// BodyTimeout is how long a client may take to send a body.
	BodyTimeout time.Duration
	// Deadline is the longest time from the start of a request to the end of its answer.
	Deadline time.Duration
	// DialTimeout of a connection to a replica.
	DialTimeout time.Duration
	// Retries are further replicas that a request may try.
	Retries int
	// IsOpen: clients need no key.
	IsOpen bool
	// Resumes: another replica continues a stream whose replica died.
	Resumes bool
	// ResumeMemory is for the texts of all these streams, in bytes.
	ResumeMemory int64
	// Hold bounds the requests that wait for a first replica.
	Hold hold.Limits
}

// Defaults returns the settings that the command starts with.
func Defaults() Settings {
	return Settings{
		MaxBody: 32 << 20, BodyBudget: 256 << 20, BodyTimeout: time.Minute, Deadline: 30 * time.Minute,
		DialTimeout: 2 * time.Second, Retries: 2, ResumeMemory: 64 << 20, Hold: hold.Limits{Bytes: 64 << 20, Time: 10 * time.Minute},
	}
}

// Router serves the front door.
type Router struct {
	settings  Settings
	directory Directory
	keys      *limit.Keys
	anybody   *limit.Client
	counters  *balance.Counters
	metrics   *Metrics
	log       *slog.Logger
	clock     clock.WithTicker
	transport http.RoundTripper
	fresh     http.RoundTripper // a new connection for each request
	buffered  atomic.Int64
	resumable *resume.Memory
	room      *hold.Room
	waker     Waker
	tokens    *tokens.Tokens
	// uncheckedLog is the way of failed checks of tokens to the log.
	uncheckedLog rate.Sometimes
}

// Parts are what a router is made of.
type Parts struct {
	Directory Directory
	Keys      *limit.Keys
	Counters  *balance.Counters
	Metrics   *Metrics
	Log       *slog.Logger
	Clock     clock.WithTicker
	// Waker may be nil: then no request waits for a replica.
	Waker Waker
	// Tokens may be nil: then clients need a key.
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

// fullLog logs streams that cannot be continued for lack of memory: the first one of each minute.
func fullLog(most int64, log *slog.Logger) func() {
	sometimes := rate.Sometimes{Interval: time.Minute}
	return func() {
		sometimes.Do(func() {
			log.Warn("the memory for streams that another replica could continue is full: raise --resume-memory-bytes", "bytes", most)
		})
	}
}

// idleTimeout is below 5 s. Engines close idle connections after this time: it is the default of uvicorn, the server of
// vLLM, and of cpp-httplib, the server of llama.cpp. A request that meets the close is lost.
const idleTimeout = 4 * time.Second

// transport connects to replicas. It uses no proxy of the environment, and changes no answer.
func transport(settings Settings) *http.Transport {
	dialer := &net.Dialer{Timeout: settings.DialTimeout, KeepAlive: 15 * time.Second}
	return &http.Transport{
		DialContext: dialer.DialContext, DisableCompression: true, ForceAttemptHTTP2: false,
		MaxIdleConns: 1024, MaxIdleConnsPerHost: 256, IdleConnTimeout: idleTimeout,
		MaxResponseHeaderBytes: 64 << 10, WriteBufferSize: 16 << 10, ReadBufferSize: 16 << 10,
	}
}

// Server returns the server of a handler. Its limits hold for slow clients and large headers; the body has its own
// deadline.
func Server(handler http.Handler) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		Protocols: &protocols,
	}
}
