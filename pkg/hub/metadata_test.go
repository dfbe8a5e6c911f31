// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestResolve(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/models/org/model/revision/main":
			fmt.Fprintf(w, `{"sha": %q, "siblings": []}`, testCommit)
		case "/api/models/org/model/revision/odd":
			fmt.Fprint(w, `{"sha": "HEAD"}`)
		default:
			fmt.Fprint(w, `<html>welcome to the hotel's network</html>`)
		}
	})
	c := newTestClient(t, s.URL)
	for _, tc := range []struct {
		reason, revision, want string
		malformed              bool
	}{
		{"a branch names a commit", "main", testCommit, false},
		{"an answer without a commit is not a hub's", "odd", "", true},
		{"a captive portal is not a hub", "portal", "", true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, err := c.Resolve(t.Context(), testRepo, tc.revision)
			if got != tc.want || errors.As(err, new(*MalformedError)) != tc.malformed {
				t.Errorf("Resolve() = %q, %v; want %q, malformed %t", got, err, tc.want, tc.malformed)
			}
		})
	}
}

func TestTree(t *testing.T) {
	page1 := `[{"type":"directory","oid":"` + testCommit + `","size":0,"path":"q4"},
		{"type":"file","oid":"` + testCommit + `","size":12,"path":"config.json"}]`
	page2 := `[{"type":"file","oid":"` + testCommit + `","size":1000,"path":"q4/a.gguf",
		"lfs":{"oid":"` + testSHA256 + `","size":1000,"pointerSize":134},"xetHash":"x"},
		{"type":"file","oid":"","size":3,"path":"strange","lfs":null}]`
	var queries []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		queries = append(queries, r.URL.RequestURI())
		if r.URL.Query().Get("cursor") == "2" {
			fmt.Fprint(w, page2)
			return
		}
		// The reference may also be relative.
		w.Header().Set("Link", `</api/models/org/model/tree/main?recursive=true&cursor=2>; rel="next"`)
		fmt.Fprint(w, page1)
	})
	got, err := newTestClient(t, s.URL).Tree(t.Context(), testRepo, "main")
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{
		{Path: "config.json", Size: 12, Digest: Digest{GitBlob, testCommit}},
		{Path: "q4/a.gguf", Size: 1000, Digest: Digest{SHA256, testSHA256}},
		{Path: "strange", Size: 3},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Tree() (-want +got):\n%s", diff)
	}
	wantQueries := []string{
		"/api/models/org/model/tree/main?recursive=true",
		"/api/models/org/model/tree/main?recursive=true&cursor=2",
	}
	if diff := cmp.Diff(wantQueries, queries); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestTreeEnds(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", `<`+r.URL.RequestURI()+`>; rel="next"`)
		fmt.Fprint(w, `[]`)
	})
	_, err := newTestClient(t, s.URL).Tree(t.Context(), testRepo, "main")
	if !errors.As(err, new(*MalformedError)) {
		t.Errorf("Tree() of a list without an end = %v, want a MalformedError", err)
	}
}

func TestTreeKeepsTokenAtHome(t *testing.T) {
	var elsewhere []string
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		elsewhere = append(elsewhere, r.Header.Get("Authorization"))
		fmt.Fprint(w, `[]`)
	})
	home := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", `<`+other.URL+`/next>; rel="next"`)
		fmt.Fprint(w, `[]`)
	})
	if _, err := newTestClient(t, home.URL).Tree(t.Context(), testRepo, "main"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{""}, elsewhere); diff != "" {
		t.Errorf("tokens on another host's page (-want +got):\n%s", diff)
	}
}

func TestStat(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/org/model/resolve/main/lfs", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Repo-Commit", testCommit)
		w.Header().Set("X-Linked-Etag", `"`+testSHA256+`"`)
		w.Header().Set("X-Linked-Size", "1000")
		w.Header().Set("Location", "http://cdn.invalid/blob?signature=secret")
		w.WriteHeader(http.StatusFound)
	})
	mux.HandleFunc("/org/model/resolve/main/small", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/api/resolve-cache/small", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/api/resolve-cache/small", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Repo-Commit", testCommit)
		w.Header().Set("ETag", `"`+testCommit+`"`)
		w.Header().Set("Content-Length", "12")
	})
	mux.HandleFunc("/org/model/resolve/main/own-store", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Repo-Commit", testCommit)
		w.Header().Set("X-Linked-Etag", `W/"`+testSHA256+`"`)
		w.Header().Set("X-Linked-Size", "7")
		http.Redirect(w, r, "/store/own", http.StatusFound)
	})
	mux.HandleFunc("/store/own", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"multipart-2"`)
		w.Header().Set("Content-Length", "7")
	})
	mux.HandleFunc("/org/model/resolve/main/vague", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Transfer-Encoding", "chunked")
	})
	s := serve(t, mux.ServeHTTP)
	c := newTestClient(t, s.URL)
	sha := Digest{SHA256, testSHA256}
	for _, tc := range []struct {
		reason, path string
		want         Metadata
	}{
		{"a large file: the hub's headers count, the CDN is not asked", "lfs", Metadata{testCommit, 1000, sha}},
		{"a small file behind the hub's own cache has a size and no SHA-256", "small", Metadata{Commit: testCommit, Size: 12}},
		{"headers of the redirecting answer survive a store on the same host", "own-store", Metadata{testCommit, 7, sha}},
		{"a hub that says nothing", "vague", Metadata{Size: -1}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, err := c.Stat(t.Context(), File{testRepo, "main", tc.path})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Stat() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	now := time.Date(2025, 1, 1, 12, 0, 0, 0, time.UTC)
	f := File{testRepo, "main", "a"}
	for _, tc := range []struct {
		reason string
		status int
		header map[string]string
		want   error
	}{
		{"no token, or no such repository", 401, map[string]string{"X-Error-Code": "RepoNotFound"}, &UnauthorizedError{File: f, Status: 401, TokenSent: true}},
		{
			"gated", 403,
			map[string]string{"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to model org/model is\trestricted."},
			&UnauthorizedError{File: f, Status: 403, Gated: true, TokenSent: true, Message: "Access to model org/model is restricted."},
		},
		{"no such repository", 404, map[string]string{"X-Error-Code": "RepoNotFound"}, &NotFoundError{File: f, Missing: "repository"}},
		{"no such revision", 404, map[string]string{"X-Error-Code": "RevisionNotFound"}, &NotFoundError{File: f, Missing: "revision"}},
		{"no such file", 404, map[string]string{"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"}, &NotFoundError{File: f, Missing: "file", Message: "Entry not found"}},
		{"a mirror that does not say", 404, nil, &NotFoundError{File: f, Missing: "resource"}},
		{"rate limit in seconds", 429, map[string]string{"Retry-After": "7"}, &UnreachableError{File: f, Status: 429, RetryAfter: 7 * time.Second}},
		{"rate limit as a date", 429, map[string]string{"Retry-After": "Wed, 01 Jan 2025 12:01:00 GMT"}, &UnreachableError{File: f, Status: 429, RetryAfter: time.Minute}},
		{"a date that has passed", 503, map[string]string{"Retry-After": "Wed, 01 Jan 2025 11:00:00 GMT"}, &UnreachableError{File: f, Status: 503}},
		{"rate limit in the hub's own header", 429, map[string]string{"RateLimit": `"api";r=0;t=55`}, &UnreachableError{File: f, Status: 429, RetryAfter: 55 * time.Second}},
		{"nonsense", 429, map[string]string{"Retry-After": "soon"}, &UnreachableError{File: f, Status: 429}},
		{"broken", 500, nil, &UnreachableError{File: f, Status: 500}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range tc.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(tc.status)
			})
			if u := new(UnreachableError); errors.As(tc.want, &u) {
				u.Endpoint = s.URL
			}
			c := newTestClient(t, s.URL, func(o *Options) { o.Clock = clocktesting.NewFakeClock(now) })
			_, err := c.Stat(t.Context(), f)
			if diff := cmp.Diff(tc.want, err); diff != "" {
				t.Errorf("Stat() error (-want +got):\n%s", diff)
			}
			if err != nil && strings.Contains(err.Error(), testToken) {
				t.Errorf("error shows the token: %v", err)
			}
		})
	}
}

func TestDeadlines(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(release) })
	c := newTestClient(t, s.URL, func(o *Options) { o.AnswerTimeout = 20 * time.Millisecond })
	f := File{testRepo, "main", "a"}
	calls := map[string]func(ctx context.Context) error{
		"stat":    func(ctx context.Context) error { _, err := c.Stat(ctx, f); return err },
		"resolve": func(ctx context.Context) error { _, err := c.Resolve(ctx, f.Repo, "main"); return err },
		"info":    func(ctx context.Context) error { _, err := c.Info(ctx, f.Repo, "main"); return err },
		"json":    func(ctx context.Context) error { _, _, err := c.ReadJSON(ctx, f, 10); return err },
		"start":   func(ctx context.Context) error { _, err := c.ReadStart(ctx, f, 8); return err },
		"open":    func(ctx context.Context) error { _, err := c.Open(ctx, f, Range{0, 1}); return err },
	}
	for name, call := range calls {
		t.Run(name+": a hub that never answers is out of reach", func(t *testing.T) {
			err := call(t.Context())
			if !errors.As(err, new(*UnreachableError)) || !strings.HasSuffix(err.Error(), "no answer within 20ms") {
				t.Errorf("err = %v, want an UnreachableError after 20ms", err)
			}
		})
		t.Run(name+": a caller who gives up gets the own reason back", func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cause := errors.New("enough")
			cancel(cause)
			err := call(ctx)
			if !errors.Is(err, cause) || errors.As(err, new(*UnreachableError)) {
				t.Errorf("err = %v, want the caller's cause", err)
			}
		})
	}
}

func TestNobodyListens(t *testing.T) {
	s := serve(t, nil)
	url := s.URL
	s.Close()
	_, err := newTestClient(t, url).Stat(t.Context(), File{testRepo, "main", "a"})
	if !errors.As(err, new(*UnreachableError)) {
		t.Errorf("Stat() = %v, want an UnreachableError", err)
	}
}
