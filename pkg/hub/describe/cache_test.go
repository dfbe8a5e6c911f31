// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package describe_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/pkg/hub"
	"github.com/modelberth/modelberth/pkg/hub/describe"
)

// TestCache queries a hub with a public model, a gated one, and failures on demand.
func TestCache(t *testing.T) {
	config, err := os.ReadFile("../../cli/testdata/manifests/config.json")
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	var broken atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		isPrivate := strings.Contains(r.URL.Path, "org/Private") && r.Header.Get("Authorization") != "Bearer secret"
		switch {
		case broken.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case strings.Contains(r.URL.Path, "org/Unknown"), isPrivate, !strings.HasSuffix(r.URL.Path, "/config.json"):
			http.NotFound(w, r)
		default:
			_, _ = w.Write(config)
		}
	}))
	defer server.Close()
	now := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	cache := describe.NewCache(server.URL, hub.NewHTTPClient(1), now)
	for _, step := range []struct {
		reason, repo, token string
		after               time.Duration
		broken              bool
		fails, asks         bool
	}{
		{reason: "the first one asks", repo: "org/Known", asks: true},
		{reason: "the next is told the same", repo: "org/Known"},
		{reason: "another token may be told something else", repo: "org/Known", token: "secret", asks: true},
		{reason: "a token opens what is private", repo: "org/Private", token: "secret", asks: true},
		{reason: "for nobody else", repo: "org/Private", fails: true, asks: true},
		{reason: "what is not there is not asked for again", repo: "org/Unknown", fails: true, asks: true},
		{reason: "for a minute", repo: "org/Unknown", fails: true, after: 59 * time.Second},
		{reason: "then it may have come", repo: "org/Unknown", fails: true, after: 2 * time.Second, asks: true},
		{reason: "an answer is forgotten after an hour, and the hub breaks", repo: "org/Known", after: time.Hour, broken: true, fails: true, asks: true},
		{reason: "a hub that is broken is left alone by all", repo: "org/Private", token: "secret", broken: true, fails: true},
		{reason: "until it is asked again", repo: "org/Known", after: 31 * time.Second, asks: true},
	} {
		now.SetTime(now.Now().Add(step.after))
		broken.Store(step.broken)
		before := asked.Load()
		d, err := cache.Describe(t.Context(), step.repo, "", step.token)
		if (err != nil) != step.fails || (asked.Load() > before) != step.asks {
			t.Errorf("%s: %+v, %v, %d requests", step.reason, d.Model.HubID, err, asked.Load()-before)
		}
	}
}
