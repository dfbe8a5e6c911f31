// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package loader keeps the adapters of a running engine as the controller lists them, and hides the engine's routes for
// that from clients.
//
// It decides when an adapter is loaded and unloaded, and when the engine counts as ready. It must not know Kubernetes or
// how files are fetched.
package loader

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelberth/modelberth/pkg/adapters"
)

// Guard returns a handler that passes requests to the engine, except changes of its adapters. With such a request, any
// client could make the engine read any path. Readiness is the engine's health, but not OK while the engine lacks an
// adapter that it served before: no request for the adapter then reaches the pod. A missing adapter does not change the
// health itself, so the kubelet does not restart the engine. The route with the states requires the key of the engine's
// clients, if they need one.
func Guard(engine *url.URL, healthPath, key string, of *Keeper) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(engine)
			r.Out.Host = r.In.Host
			if r.In.URL.Path == adapters.ReadyPath {
				r.Out.URL.Path, r.Out.URL.RawPath = healthPath, ""
			}
		},
		FlushInterval: -1, // streams
		Transport: &http.Transport{
			MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: idleTimeout, DisableCompression: true,
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if isDown(err) {
				w.Header().Set(adapters.RefusedHeader, "true")
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == adapters.StatePath:
			writeState(w, r, key, of)
		case isReserved(r.URL.Path):
			http.Error(w, "adapters are listed in the field inference.adapters of the Workspace", http.StatusForbidden)
		case r.URL.Path == adapters.ReadyPath && !of.IsComplete(r.Context()):
			http.Error(w, "an adapter is not loaded yet", http.StatusServiceUnavailable)
		default:
			proxy.ServeHTTP(w, r)
		}
	})
}

// idleConnections is the number of connections to the engine that wait for requests. The engine closes them after 5
// seconds (VLLM_HTTP_TIMEOUT_KEEP_ALIVE). A request at that moment would fail, so the proxy closes the connections
// earlier.
const (
	idleConnections = 256
	idleTimeout     = 2 * time.Second
)

// isReserved reports whether a path may lead to a route for changes of adapters. vLLM has two names for each: one of
// its own, and one below /adapters for SageMaker. A prefix (--root-path) changes nothing. Path has no escapes any more,
// as in the engine.
func isReserved(path string) bool {
	path = strings.ToLower(path)
	return strings.Contains(path, "lora_adapter") || slices.Contains(strings.Split(path, "/"), "adapters")
}

func writeState(w http.ResponseWriter, r *http.Request, key string, of *Keeper) {
	given := r.Header.Get("Authorization")
	if key != "" && subtle.ConstantTimeCompare([]byte(given), []byte("Bearer "+key)) != 1 {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// If the caller disconnects early, that is not our failure.
	_ = json.NewEncoder(w).Encode(of.State(r.Context()))
}

// headerTimeout is how long a client may take to send its headers. Requests and answers may take as long as the engine
// allows.
const headerTimeout = 30 * time.Second

// clientIdle is how long a connection may wait for another request. A client repeats a request on a new connection if the
// old one has just ended.
const clientIdle = 2 * time.Minute

// NewServer returns a server for the guard.
func NewServer(handler http.Handler) *http.Server {
	return &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: clientIdle}
}

// Engine loads and unloads adapters.
type Engine interface {
	Loaded(ctx context.Context) (map[string]string, error)
	Load(ctx context.Context, name, dir string) error
	Unload(ctx context.Context, name string) error
}
