// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// TestHubDescriber uses the real describer with a fake hub.
func TestHubDescriber(t *testing.T) {
	config, err := os.ReadFile("testdata/manifests/config.json")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/config.json") && strings.Contains(r.URL.Path, "org/Known"):
			_, _ = w.Write(config)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	hub, err := newHub(server.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := hub.Describe(t.Context(), "org/Known")
	if err != nil || m.HubID != "org/Known" || m.Shape.Layers != 32 || m.Context != 8192 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, _, err := hub.Describe(t.Context(), "org/Unknown"); err == nil || !strings.Contains(err.Error(), "--config") {
		t.Errorf("an unknown model: %v, want the remedy with --config", err)
	}
	if _, err := newHub("not a url", ""); err == nil {
		t.Error("an endpoint that is none is accepted")
	}
}
