// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cosign_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/modelberth/modelberth/pkg/cosign"
)

const (
	keylessField = "inference.weights.oci.verify.keyless"
	verified     = `{"verified":true}`
)

// guard is a verifier with preset answers.
type guard struct {
	socket string

	mu    sync.Mutex
	asked []string
}

// newGuard returns a guard that gives the answers in turn and repeats the last. For an empty answer, it stays silent.
func newGuard(t *testing.T, answers ...string) *guard {
	t.Helper()
	g := &guard{socket: filepath.Join(t.TempDir(), "s")}
	listener, err := net.Listen("unix", g.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for n := 0; ; n++ {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			content, _ := io.ReadAll(connection)
			g.mu.Lock()
			g.asked = append(g.asked, string(content))
			g.mu.Unlock()
			if said := answers[min(n, len(answers)-1)]; said != "" {
				_, _ = io.WriteString(connection, said)
				_ = connection.Close()
			}
		}
	}()
	return g
}

func (g *guard) questions() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

// TestVerifierAnswers: anything except a plain yes counts as no, and an unreachable verifier is a separate error.
func TestVerifierAnswers(t *testing.T) {
	for _, tc := range []struct {
		reason, answer, want string
		isAway               bool
	}{
		{"yes", verified, "", false},
		{"no", `{"verified":false,"problem":"another \"issuer\""}`, `another \"issuer\"`, false},
		{"yes and a problem", `{"verified":true,"problem":"p"}`, `"p"`, false},
		{"neither", `{}`, `""`, false},
		{"a signed URL is not repeated", `{"problem":"https://a.example/?sig=s3cret"}`, "https://a.example/?…", false},
		{"no JSON", "yes", "malformed", true},
		{"nothing", " ", "malformed", true},
		{"something unknown", `{"verified":true,"for":"somebody else"}`, "malformed", true},
		{"too much", strings.Repeat(" ", 4<<10) + verified, "more than 4096 bytes", true},
		{"silence", "", "timeout", true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			ctx := t.Context()
			if tc.answer == "" {
				short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				ctx = short
			}
			err := cosign.Verifier{Socket: newGuard(t, tc.answer).socket}.Verify(ctx, cosign.Question{})
			_, isAway := errors.AsType[*cosign.VerifierError](err)
			if (err == nil) != (tc.want == "") || isAway != tc.isAway || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Verify() = %v (away: %t), want %q", err, isAway, tc.want)
			}
		})
	}
	err := cosign.Verifier{Socket: filepath.Join(t.TempDir(), "absent")}.Verify(t.Context(), cosign.Question{})
	if _, isAway := errors.AsType[*cosign.VerifierError](err); !isAway {
		t.Errorf("Verify() without a verifier = %v", err)
	}
}

// TestQuestionIsTheVerifiers: the request is the one that the verifier's tests read.
func TestQuestionIsTheVerifiers(t *testing.T) {
	g := newGuard(t, verified)
	if err := (cosign.Verifier{Socket: g.socket}).Verify(t.Context(), cosign.Question{
		Bundle: []byte("{}"), Digest: strings.Repeat("0", 63) + "1", PredicateType: signPredicate,
		Issuer: "https://accounts.example", SubjectRegExp: `https://ci\.example/.*`,
	}); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../../verifier/testdata/request.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{strings.TrimSpace(string(want))}, g.questions()); diff != "" {
		t.Errorf("question: -want +got:\n%s", diff)
	}
}

// TestVerifyIdentity: only bundles count. The verifier gets each with the digest, and one good bundle is enough.
func TestVerifyIdentity(t *testing.T) {
	ours := newECDSA(t)
	bundle := func(s *shelf) { s.refer(s.digest, ours.bundle(s.digest, signPredicate)) }
	const no = `{"problem":"another issuer"}`
	for _, tc := range []struct {
		reason    string
		put       func(*shelf)
		answers   []string
		questions int
		want      string
	}{
		{"verified", bundle, []string{verified}, 1, ""},
		{"not verified", bundle, []string{no}, 1, `no signature by the identity of ` + keylessField + ` could be verified: "another issuer"`},
		{"the second of two", func(s *shelf) {
			bundle(s)
			bundle(s)
		}, []string{no, verified}, 2, ""},
		{"unsigned", func(*shelf) {}, []string{verified}, 0, "it has no signature, and " + keylessField + " requires one"},
		{"a signature below a tag", func(s *shelf) { s.tag(s.digest, ours.good(s.digest)) }, []string{verified}, 0, "it has no signature bundle"},
		{"the verifier is no verifier", bundle, []string{"?"}, 1, "modelberth-verifier did not answer"},
		{"a bundle that is none is not shown", func(s *shelf) { s.refer(s.digest, []byte("{")) }, []string{verified}, 0, "a bundle is not JSON"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s, g := newShelf(t, nil, registry.WithReferrersSupport(true)), newGuard(t, tc.answers...)
			tc.put(s)
			artifact := cosign.Artifact{
				Reference: s.reference, Keychain: cosign.Credentials{}, HTTP: http.DefaultTransport, Verifier: cosign.Verifier{Socket: g.socket},
			}
			got, err := cosign.Verify(t.Context(), artifact, cosign.Requirement{
				Field: keylessField, Identity: &cosign.Identity{Issuer: "https://accounts.example", Subject: "me@example"},
			})
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("Verify() = %v, want %q", err, tc.want)
			}
			if want := s.repo.Digest(s.digest.String()).Name(); err == nil && got != want {
				t.Errorf("Verify() = %q, want %q", got, want)
			}
			questions := g.questions()
			if len(questions) != tc.questions {
				t.Errorf("%d questions, want %d", len(questions), tc.questions)
			}
			for _, question := range questions {
				var asked cosign.Question
				if err := json.Unmarshal([]byte(question), &asked); err != nil || asked.Digest != s.digest.Hex || asked.Subject != "me@example" {
					t.Errorf("asked %s, %v", question, err)
				}
			}
		})
	}
}
