// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelberth/modelberth/pkg/agent/members"
)

// TestEngineWaitsForIsolation checks that an engine that executes its input never starts without proof of isolation.
func TestEngineWaitsForIsolation(t *testing.T) {
	for _, tc := range []struct {
		reason, found string
		opens         bool
	}{
		{"nothing is found yet", "Required", false},
		{"no annotation", "", false},
		{"the group is isolated", "Isolated", true},
		{"a line's end does not matter", "Required\n", false},
		{"the administrator waives it", "Waived", true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "isolation")
			synctest.Test(t, func(t *testing.T) {
				s := Settings{Group: Group{HoldFile: file, HoldValue: "Required"}}
				g := newGate(s, slog.New(slog.DiscardHandler))
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- g.Run(ctx) }()
				time.Sleep(time.Hour) // there is no file
				if p := g.Progress(); p.Ready || p.LastError != errNotIsolated.Error() {
					t.Errorf("progress %+v", p)
				}
				if err := os.WriteFile(file, []byte(tc.found), 0o600); err != nil {
					t.Fatal(err)
				}
				err := <-done
				if tc.opens && (err != nil || !g.Progress().Ready) || !tc.opens && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Run = %v, opens is %v, want %v", err, g.Progress().Ready, tc.opens)
				}
			})
		})
	}
}

// TestStrangersLearnNothingElse checks that strangers get only a pod's identity.
func TestStrangersLearnNothingElse(t *testing.T) {
	server := newProbeServer(func() members.Identity { return members.Identity{ID: "uid-1", Group: 3} })
	for path, want := range map[string]int{
		members.Path: http.StatusOK, "/progress": http.StatusNotFound, "/drain": http.StatusNotFound, "/startupz": http.StatusNotFound,
	} {
		recorder := httptest.NewRecorder()
		server.Handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		body, _ := io.ReadAll(recorder.Body)
		if recorder.Code != want {
			t.Errorf("%s: status %d, want %d: %s", path, recorder.Code, want, body)
		}
	}
}
