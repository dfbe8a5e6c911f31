// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/agent/members"
	"github.com/modelberth/modelberth/pkg/agent/oci"
	"github.com/modelberth/modelberth/pkg/hub"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// One golden file has every sentence for users.
func TestTerminationMessages(t *testing.T) {
	s := source{endpoint: "https://hub.example", repo: "org/model", revision: "main", dest: "/models"}
	f := hub.File{Repo: "org/model", Revision: "main", Path: "q4/a.gguf"}
	whole := hub.File{Repo: "org/model", Revision: "main"}
	zeros, ones := strings.Repeat("0", 64), strings.Repeat("1", 64)
	unreachable := &hub.UnreachableError{Endpoint: "https://cdn.example", File: f, Err: errors.New("connection refused")}
	var out strings.Builder
	for _, tc := range []struct {
		name string
		err  error
	}{
		{"401 without a token", &hub.UnauthorizedError{File: f, Status: 401}},
		{"401 with a token, of the repository", &hub.UnauthorizedError{File: whole, Status: 401, TokenSent: true, Message: "Invalid credentials in Authorization header"}},
		{"gated without a token", &hub.UnauthorizedError{File: f, Status: 401, Gated: true}},
		{"gated with a token", &hub.UnauthorizedError{File: f, Status: 403, Gated: true, TokenSent: true, Message: "Access to model org/model is restricted"}},
		{"no repository", &hub.NotFoundError{File: whole, Missing: "repository", Message: "Repository not found"}},
		{"no revision", &hub.NotFoundError{File: whole, Missing: "revision"}},
		{"no file", &hub.NotFoundError{File: f, Missing: "file", Message: "Entry not found"}},
		{"no resource", &hub.NotFoundError{File: whole, Missing: "resource"}},
		{"wrong checksum", &hub.ChecksumError{File: f, Want: hub.Digest{Algorithm: hub.SHA256, Hex: zeros}, Got: ones}},
		{"no checksum", &UnverifiableError{File: f, Lacks: "checksum"}},
		{"disk full", &DiskFullError{Path: f.Path, Need: 150 << 30, Free: 1234567}},
		{"storage", storageError(f.Path, &os.PathError{Op: "open", Path: f.Path, Err: syscall.EACCES})},
		{"unreachable", &StalledError{For: time.Minute, Last: unreachable}},
		{"overloaded", &StalledError{For: time.Minute, Last: &hub.UnreachableError{Endpoint: s.endpoint, File: f, Status: 429, RetryAfter: 5 * time.Minute}}},
		{"a page instead of the hub", &StalledError{For: time.Minute, Last: &hub.MalformedError{Endpoint: s.endpoint, File: f, Err: errors.New("answer is not JSON")}}},
		{"silent", &StalledError{For: time.Minute}},
		{"wrapped", fmt.Errorf("fetching: %w", unreachable)},
		{"member lost", &members.LossError{Name: "ws-worker-1.ws-headless:8090", Was: "uid-1", Silent: 4 * time.Second, Last: errors.New("connection refused")}},
		{"member replaced", &members.LossError{Name: "ws-worker-1.ws-headless:8090", Was: "uid-1", Is: "uid-2"}},
		{"wrong endpoint", errors.New(`hub: endpoint "hub" is not a web address: give https://HOST[/PREFIX]`)},
		{"authorities that are none", &AuthorityError{File: "/etc/ca.pem", Err: errors.New("no certificate is in it")}},
		{"an unknown authority", &StalledError{For: time.Minute, Last: &hub.UnreachableError{Endpoint: "https://cdn.example", File: f, Err: x509.UnknownAuthorityError{}}}},
		{"artifact: refused", &hub.UnauthorizedError{File: whole, Status: 401}},
		{"artifact: no such tag", &hub.NotFoundError{File: whole, Missing: "revision"}},
		{"artifact: no such file", &hub.NotFoundError{File: f, Missing: "file"}},
		{"artifact: another file", &OtherFileError{Path: f.Path, Want: hub.Digest{Algorithm: hub.SHA256, Hex: zeros}, Got: ones}},
		{"artifact: too large", fmt.Errorf("unpacking: %w", &oci.LimitError{Layer: "0000-x.tar", Limit: 87 << 30, What: "bytes"})},
		{"artifact: too many files", &oci.LimitError{Layer: "0000-x.tar", Limit: 100_000, What: "entries"}},
		{"artifact: unreachable", &StalledError{For: time.Minute, Last: unreachable}},
		{"there: missing", &AbsentError{Path: f.Path, Found: -1}},
		{"there: empty", &AbsentError{Path: f.Path}},
		{"there: cut off", &AbsentError{Path: f.Path, Want: 100, Found: 99}},
		{"there: wrong checksum", &hub.ChecksumError{File: f, Want: hub.Digest{Algorithm: hub.SHA256, Hex: zeros}, Got: ones}},
		{"there: unreadable", storageError(f.Path, &os.PathError{Op: "open", Path: f.Path, Err: syscall.EACCES})},
		{"there: another error", context.DeadlineExceeded},
	} {
		from := s
		if strings.HasPrefix(tc.name, "there: ") {
			from = source{endpoint: "/models", dest: "/models"}
		}
		if strings.HasPrefix(tc.name, "artifact: ") {
			from = source{endpoint: "registry.example", repo: "registry.example/models/small", revision: "v1", dest: "/models", isImage: true}
		}
		got := explain(&sourceError{from, tc.err})
		if strings.Contains(got.Message, "\n") {
			t.Errorf("%s: message has more than one line: %q", tc.name, got.Message)
		}
		fmt.Fprintf(&out, "# %s\n%s: %s\n\n", tc.name, got.Reason, got.Message)
	}
	golden := filepath.Join("testdata", "termination.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// A termination message becomes a part of the Workspace's status, so it must not contain secrets.
func TestTerminationHasNoSignature(t *testing.T) {
	leak := &url.Error{Op: "Get", URL: "https://cdn.example/x?X-Amz-Signature=s3cret", Err: errors.New("EOF")}
	for _, err := range []error{
		leak, storageError("a", leak), &AwaitError{Address: "a:1", Err: leak}, &AuthorityError{File: "f", Err: leak},
		&hub.NotFoundError{Missing: "file", Message: leak.Error()},
	} {
		for _, of := range []source{{}, {repo: "org/model"}} {
			if got := explain(&sourceError{of, err}); strings.Contains(got.Message, "s3cret") {
				t.Errorf("explain(%T) = %q", err, got.Message)
			}
		}
	}
}

func TestTerminationFits(t *testing.T) {
	for _, tc := range []struct {
		reason, message string
		cut             bool
	}{
		{"a short one is left alone", "short", false},
		{"just at the limit", strings.Repeat("x", maxTermination-len(`{"reason":"DiskFull","message":""}`)), false},
		{"a long one is cut", strings.Repeat("x", 10_000), true},
		{"letters of several bytes are not cut in half", strings.Repeat("ü€𝄞", 2_000), true},
		{"characters that JSON writes longer", strings.Repeat("\"\x01", 3_000), true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			data, err := Termination{ReasonDiskFull, tc.message}.encode()
			if err != nil {
				t.Fatal(err)
			}
			if len(data) > maxTermination {
				t.Errorf("%d bytes, want at most %d", len(data), maxTermination)
			}
			var back Termination
			if err := json.Unmarshal(data, &back); err != nil {
				t.Fatal(err)
			}
			kept := strings.TrimSuffix(back.Message, "…")
			if (kept != back.Message) != tc.cut || !strings.HasPrefix(tc.message, kept) || !utf8.ValidString(back.Message) {
				t.Errorf("message was not kept as far as it fits: %d of %d bytes", len(kept), len(tc.message))
			}
			if tc.cut && len(data) < maxTermination-16 {
				t.Errorf("only %d bytes of %d are used", len(data), maxTermination)
			}
		})
	}
}

func TestTerminationWrite(t *testing.T) {
	path := t.TempDir() + "/termination-log"
	write(t, path, []byte("something longer that a former container left behind, and longer than what comes now"))
	if err := (Termination{ReasonDiskFull, "m"}).write(path); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"reason":"DiskFull","message":"m"}`; string(got) != want {
		t.Errorf("file holds %q, want %q", got, want)
	}
}
