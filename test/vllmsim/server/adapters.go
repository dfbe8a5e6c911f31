// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// adapters are the loaded adapters, by name.
type adapters struct {
	mu    sync.Mutex
	paths map[string]string
}

type adapter struct{ name, path string }

func (a *adapters) list() []adapter {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []adapter
	for _, name := range slices.Sorted(maps.Keys(a.paths)) {
		out = append(out, adapter{name, a.paths[name]})
	}
	return out
}

func (a *adapters) has(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, found := a.paths[name]
	return found
}

// routeAdapters adds the routes that VLLM_ALLOW_RUNTIME_LORA_UPDATING opens (vllm/entrypoints/serve/lora/api_router.py).
// Each has two names. The API key does not protect those outside /v1.
func (s *Server) routeAdapters() {
	type loading struct {
		Name    *string `json:"lora_name"`
		Path    *string `json:"lora_path"`
		InPlace bool    `json:"load_inplace"`
	}
	s.mux.HandleFunc("POST /v1/load_lora_adapter", func(w http.ResponseWriter, r *http.Request) {
		var body loading
		if isJSON(w, r) && decode(w, r, &body) {
			s.load(w, body.Name, body.Path, body.InPlace)
		}
	})
	s.mux.HandleFunc("POST /adapters", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Name *string `json:"name"`
			Path *string `json:"src"`
		}
		if isJSON(w, r) && decode(w, r, &body) {
			s.load(w, body.Name, body.Path, false)
		}
	})
	s.mux.HandleFunc("POST /v1/unload_lora_adapter", func(w http.ResponseWriter, r *http.Request) {
		var body loading
		if isJSON(w, r) && decode(w, r, &body) {
			s.unload(w, body.Name)
		}
	})
	s.mux.HandleFunc("DELETE /adapters/{name}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		s.unload(w, &name)
	})
}

func isJSON(w http.ResponseWriter, r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil && kind == "application/json" {
		return true
	}
	refuse(w, badRequest("", `['Unsupported Media Type: Only 'application/json' is allowed']`))
	return false
}

func (s *Server) load(w http.ResponseWriter, name, path *string, isInPlace bool) {
	switch {
	case name == nil || path == nil:
		refuse(w, badRequest("", "1 validation error:\n  {'type': 'missing', 'msg': 'Field required'}"))
		return
	case *name == "" || *path == "":
		refuse(w, adapterError(http.StatusBadRequest, "Both 'lora_name' and 'lora_path' must be provided."))
		return
	}
	s.adapters.mu.Lock() // vLLM locks each name
	defer s.adapters.mu.Unlock()
	if _, found := s.adapters.paths[*name]; found && !isInPlace {
		refuse(w, adapterError(http.StatusBadRequest, "The lora adapter '%s' has already been loaded. If you want to load the adapter in place, "+
			"set 'load_inplace' to True.", *name))
		return
	}
	if message := s.options.LoadAdapter(*path); message != "" {
		status := http.StatusInternalServerError
		if strings.Contains(message, "No adapter found") {
			status, message = http.StatusNotFound, fmt.Sprintf("Loading lora %s failed: No adapter found for %s", *name, *path)
		}
		refuse(w, adapterError(status, "%s", message))
		return
	}
	if s.adapters.paths == nil {
		s.adapters.paths = map[string]string{}
	}
	s.adapters.paths[*name] = *path
	succeed(w, "Success: LoRA adapter '"+*name+"' added successfully.")
}

func (s *Server) unload(w http.ResponseWriter, name *string) {
	if name == nil || *name == "" {
		refuse(w, adapterError(http.StatusBadRequest, "'lora_name' needs to be provided to unload a LoRA adapter."))
		return
	}
	s.adapters.mu.Lock()
	defer s.adapters.mu.Unlock()
	if _, found := s.adapters.paths[*name]; !found {
		refuse(w, adapterError(http.StatusNotFound, "The lora adapter '%s' cannot be found.", *name))
		return
	}
	delete(s.adapters.paths, *name)
	succeed(w, "Success: LoRA adapter '"+*name+"' removed successfully.")
}

// succeed answers with text, which is no JSON.
func succeed(w http.ResponseWriter, text string) { _, _ = w.Write([]byte(text)) }

func adapterError(status int, format string, a ...any) *apiError {
	kind := map[int]string{http.StatusBadRequest: "InvalidUserInput", http.StatusNotFound: "NotFoundError"}[status]
	if kind == "" {
		kind = "InternalServerError"
	}
	return &apiError{Message: fmt.Sprintf(format, a...), Type: kind, Code: status}
}
