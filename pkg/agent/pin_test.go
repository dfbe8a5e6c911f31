// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/pkg/hub"
)

// moving returns a hub with a branch that moves at each query.
func moving(t *testing.T, files map[string][]byte) *fakeHub {
	t.Helper()
	h := newFakeHub(t, files)
	asked := 0
	h.setFault(func(w http.ResponseWriter, r *http.Request) (int64, bool) {
		if !strings.Contains(r.URL.Path, "/revision/") {
			return noLimit, false
		}
		asked++
		fmt.Fprintf(w, `{"sha":"%040d"}`, asked)
		return 0, true
	})
	return h
}

// A pod resolves a branch once, and not at all if the commit is kept.
func TestPin(t *testing.T) {
	kept := strings.Repeat("ab", 20)
	for _, tc := range []struct {
		reason string
		kept   []string
		want   string
	}{
		{"the first pod asks, and asks no more", []string{"", ""}, fmt.Sprintf("%040d", 1)},
		{"a later pod is told", []string{kept}, kept},
		{"what the pod has counts", []string{"", kept}, fmt.Sprintf("%040d", 1)},
		{"what is no commit does not", []string{"main"}, fmt.Sprintf("%040d", 1)},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			h, dir := moving(t, nil), volumeDir(t)
			var got string
			for _, kept := range tc.kept {
				var err error
				if got, err = newRig(t, h, dir).Pin(t.Context(), kept); err != nil {
					t.Fatal(err)
				}
			}
			if got != tc.want {
				t.Errorf("commit %s, want %s", got, tc.want)
			}
		})
	}
}

// A fetch uses the resolved commit, even if the branch has moved since. A damaged record, or a record of another query,
// does not count.
func TestFetchOfASettledCommit(t *testing.T) {
	kept := strings.Repeat("ab", 20)
	for _, tc := range []struct {
		reason, record string
		want           string
	}{
		{"settled", fmt.Sprintf(`{"version":1,"repo":%q,"revision":"main","commit":%q}`, testRepo, kept), kept},
		{"for another branch", fmt.Sprintf(`{"version":1,"repo":%q,"revision":"dev","commit":%q}`, testRepo, kept), fmt.Sprintf("%040d", 1)},
		{"spoilt", "{", fmt.Sprintf("%040d", 1)},
		{"no commit", fmt.Sprintf(`{"version":1,"repo":%q,"revision":"main","commit":"main"}`, testRepo), fmt.Sprintf("%040d", 1)},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			h, dir := moving(t, nil), volumeDir(t)
			write(t, dir+"/"+pinName, []byte(tc.record))
			got, err := newRig(t, h, dir).commit(t.Context())
			if err != nil || got != tc.want {
				t.Errorf("commit %s, %v; want %s", got, err, tc.want)
			}
		})
	}
}

// A hub's refusal has the same message as in a fetch.
func TestPinRefused(t *testing.T) {
	h := newFakeHub(t, nil)
	h.setFault(func(w http.ResponseWriter, _ *http.Request) (int64, bool) {
		w.WriteHeader(http.StatusUnauthorized)
		return 0, true
	})
	_, err := newRig(t, h, volumeDir(t)).Pin(t.Context(), "")
	if !errors.As(err, new(*hub.UnauthorizedError)) {
		t.Errorf("Pin() = %v, want it refused", err)
	}
}

// The program writes the commit to its termination message, and succeeds.
func TestResolveProgram(t *testing.T) {
	h, dir := moving(t, nil), volumeDir(t)
	p := startPod(t, dir, "--endpoint", h.URL, "resolve", "--dest", dir, "--repo", testRepo)
	if code := p.exitCode(t); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, p.text())
	}
	said, err := os.ReadFile(dir + "/../log")
	if want := fmt.Sprintf(`{"commit":"%040d"}`, 1); err != nil || string(said) != want {
		t.Errorf("termination message %q, %v; want %q", said, err, want)
	}
	failed := startPod(t, volumeDir(t), "--endpoint", "http://127.0.0.1:1", "--give-up-after", "200ms", "resolve", "--dest", dir, "--repo", "org/other")
	if code := failed.exitCode(t); code != 1 || !strings.Contains(failed.text(), "HubUnreachable") {
		t.Errorf("exit code %d, want 1 because of the hub:\n%s", code, failed.text())
	}
}
