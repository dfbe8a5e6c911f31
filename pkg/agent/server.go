// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/modelberth/modelberth/pkg/agent/fetch"
	"github.com/modelberth/modelberth/pkg/agent/members"
)

// Time limits of the probe server. Its callers are the kubelet and people.
const (
	readTimeout  = 5 * time.Second
	writeTimeout = 10 * time.Second
)

// routes has the sources of the server's answers.
type routes struct {
	progress func() fetch.Progress
	self     func() members.Identity
	drain    http.Handler
}

// newServer returns a server for the kubelet and the other members of the group. /startupz is 200 once all files are in
// place, and /healthz as long as the process lives. /progress has the state of the files. /drain is 200 once the engine
// may end. The members' route has the pod's identity.
func newServer(to routes) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /drain", to.drain)
	mux.Handle("GET "+members.Path, members.Handler(to.self))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	})
	mux.HandleFunc("GET /progress", func(w http.ResponseWriter, _ *http.Request) {
		writeProgress(w, http.StatusOK, to.progress())
	})
	mux.HandleFunc("GET /startupz", func(w http.ResponseWriter, _ *http.Request) {
		p := to.progress()
		status := http.StatusServiceUnavailable
		if p.Ready {
			status = http.StatusOK
		}
		writeProgress(w, status, p)
	})
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
	}
}

// newProbeServer returns a server that gives any client the pod's identity, and nothing else.
func newProbeServer(self func() members.Identity) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET "+members.Path, members.Handler(self))
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
	}
}

func writeProgress(w http.ResponseWriter, status int, p fetch.Progress) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// If the caller disconnects early, that is not our failure.
	_ = json.NewEncoder(w).Encode(p)
}
