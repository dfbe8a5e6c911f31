// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"net/http"

	"github.com/modelberth/modelberth/pkg/router/resume"
)

// route is a path of the API.
type route struct {
	path string
	// isForm: the body is a form; otherwise it is JSON.
	isForm bool
	// streams: the answer may be a stream of events.
	streams bool
	// streamsUsage: a stream has its usage only if the request sets stream_options.include_usage.
	streamsUsage bool
	// salted: the engine keeps the prompt in a prefix cache, so the router sets the member cache_salt. llama.cpp, and
	// releases of vLLM without cache_salt on the route, ignore it.
	salted bool
	// resumes: another replica can continue a stream of this kind.
	resumes resume.Kind
	// keepsState: the engine remembers the request, so the router must not send it twice.
	keepsState bool
}

// routes has all paths that the router passes to replicas. An engine's other paths load adapters or profile it, for
// example.
var routes = map[string]route{ //nolint:gochecknoglobals // a constant table
	"/v1/chat/completions":     {path: "/v1/chat/completions", streams: true, streamsUsage: true, salted: true, resumes: resume.Chat},
	"/v1/completions":          {path: "/v1/completions", streams: true, streamsUsage: true, salted: true, resumes: resume.Completion},
	"/v1/embeddings":           {path: "/v1/embeddings", salted: true},
	"/v1/rerank":               {path: "/v1/rerank", salted: true},
	"/v1/responses":            {path: "/v1/responses", streams: true, salted: true, keepsState: true},
	"/v1/messages":             {path: "/v1/messages", streams: true, salted: true},
	"/v1/audio/speech":         {path: "/v1/audio/speech"},
	"/v1/audio/transcriptions": {path: "/v1/audio/transcriptions", isForm: true},
	"/v1/audio/translations":   {path: "/v1/audio/translations", isForm: true},
}

// pathModels is the path of the list of models.
const pathModels = "/v1/models"

// allowed returns the HTTP method of a path, or an empty string for an unknown path.
func allowed(path string) string {
	if path == pathModels || isModelPath(path) {
		return http.MethodGet
	}
	if _, ok := routes[path]; ok {
		return http.MethodPost
	}
	return ""
}

func isModelPath(path string) bool {
	return len(path) > len(pathModels)+1 && path[:len(pathModels)+1] == pathModels+"/"
}
