// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/pkg/agent/fetch"
	"github.com/modelberth/modelberth/pkg/agent/members"
)

func TestTracker(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Unix(1000, 0))
	tr := newTracker(fake, []string{"a", "b"})
	tr.set(fetch.FileProgress{Path: "a", Stage: fetch.StageFetching, Bytes: 1000, TotalBytes: 5000})
	tr.set(fetch.FileProgress{Path: "b", Stage: fetch.StageReady, Bytes: 10, TotalBytes: 10})
	tr.received("a", 500)
	fake.Step(time.Second)
	tr.received("a", 500)
	fake.Step(time.Second)
	want := fetch.Progress{
		Stage: fetch.StageFetching, Bytes: 2010, TotalBytes: 5010, BytesPerSecond: 500, ETASeconds: 6,
		Files: []fetch.FileProgress{
			{Path: "a", Stage: fetch.StageFetching, Bytes: 2000, TotalBytes: 5000},
			{Path: "b", Stage: fetch.StageReady, Bytes: 10, TotalBytes: 10},
		},
	}
	if diff := cmp.Diff(want, tr.snapshot()); diff != "" {
		t.Errorf("half-way (-want +got):\n%s", diff)
	}
	fake.Step(time.Minute)
	if got := tr.snapshot(); got.BytesPerSecond != 0 || got.ETASeconds != 0 {
		t.Errorf("after a minute of nothing: %d B/s, ETA %ds, want 0 and 0", got.BytesPerSecond, got.ETASeconds)
	}
	tr.stage("a", fetch.StageVerifying)
	if got := tr.snapshot(); got.Stage != fetch.StageVerifying || got.Ready {
		t.Errorf("stage %q, ready %t while the last file is verified", got.Stage, got.Ready)
	}
	tr.stage("a", fetch.StageReady)
	if got := tr.snapshot(); !got.Ready || got.Stage != fetch.StageReady {
		t.Errorf("stage %q, ready %t when all files are", got.Stage, got.Ready)
	}
}

func TestMeterForgets(t *testing.T) {
	var m meter
	at := time.Unix(1000, 0)
	for range 100 {
		m.add(at, 700)
		at = at.Add(time.Second)
	}
	// The current second has just begun, so the rate is nine full seconds over ten.
	if got := m.rate(at); got != 630 {
		t.Errorf("rate() of a steady 700 B/s = %d, want 630", got)
	}
}

func TestServer(t *testing.T) {
	var now fetch.Progress
	s := httptest.NewServer(newServer(routes{
		progress: func() fetch.Progress { return now },
		self:     func() members.Identity { return members.Identity{ID: "uid", Group: 3} },
		drain:    http.NotFoundHandler(),
	}).Handler)
	defer s.Close()
	get := func(method, path string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	half := fetch.Progress{Stage: fetch.StageFetching, Bytes: 1, TotalBytes: 2, BytesPerSecond: 3, ETASeconds: 4, LastError: "e", Files: []fetch.FileProgress{{Path: "a", Stage: fetch.StageFetching, Bytes: 1, TotalBytes: 2}}}
	const halfText = `{"ready":false,"stage":"fetching","bytes":1,"totalBytes":2,"bytesPerSecond":3,"etaSeconds":4,"lastError":"e",` +
		`"files":[{"path":"a","stage":"fetching","bytes":1,"totalBytes":2}]}` + "\n"
	ready := fetch.Progress{Ready: true, Stage: fetch.StageReady, Files: []fetch.FileProgress{}}
	for _, tc := range []struct {
		reason       string
		progress     fetch.Progress
		method, path string
		status       int
		body         string
	}{
		{"not started while files are missing, and it says how far", half, "GET", "/startupz", 503, halfText},
		{"alive all the while", half, "GET", "/healthz", 200, ""},
		{"progress is no probe", half, "GET", "/progress", 200, halfText},
		{"started", ready, "GET", "/startupz", 200, mustJSON(t, ready)},
		{"who it is, files or not", half, "GET", "/member", 200, `{"id":"uid","group":3,"draining":false}` + "\n"},
		{"nothing else", ready, "GET", "/", 404, "404 page not found\n"},
		{"read only", ready, "POST", "/progress", 405, "Method Not Allowed\n"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			now = tc.progress
			status, body := get(tc.method, tc.path)
			if diff := cmp.Diff([]any{tc.status, tc.body}, []any{status, body}); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", tc.method, tc.path, diff)
			}
		})
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}
