// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestReadJSON(t *testing.T) {
	const most = 16
	for _, tc := range []struct {
		reason, content, header string
		wantCommit, wantErr     string
	}{
		{"an object, with the commit that it is of", " \r\n{}", testCommit, testCommit, ""},
		{"a mirror that names no commit", "{}", "", "", ""},
		{"what stands for a commit and is none", "{}", "main", "", ""},
		{"as much as is allowed", "{" + strings.Repeat(" ", most-1), testCommit, testCommit, ""},
		{"one byte more", "{" + strings.Repeat(" ", most), testCommit, "", "org/model@main/a.json: the file is larger than the limit of 16 bytes"},
		{"a portal's page", "<html>", testCommit, "", "the response is not the JSON of a Hugging Face-compatible hub"},
		{"nothing", "", testCommit, "", "the response is not the JSON of a Hugging Face-compatible hub"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/org/model/resolve/main/a.json" {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("X-Repo-Commit", tc.header)
				fmt.Fprint(w, tc.content)
			})
			f := File{testRepo, "main", "a.json"}
			got, commit, err := newTestClient(t, s.URL).ReadJSON(t.Context(), f, most)
			if tc.wantErr != "" {
				malformed, isMalformed := errors.AsType[*MalformedError](err)
				large, isLarge := errors.AsType[*TooLargeError](err)
				ofFile := isMalformed && malformed.File == f || isLarge && large.File == f
				if !ofFile || !strings.HasSuffix(err.Error(), tc.wantErr) {
					t.Errorf("ReadJSON() error = %v, want a MalformedError or TooLargeError of %s with %q", err, f, tc.wantErr)
				}
				return
			}
			if err != nil || string(got) != tc.content || commit != tc.wantCommit {
				t.Errorf("ReadJSON() = %q, %q, %v; want %q, %q", got, commit, err, tc.content, tc.wantCommit)
			}
		})
	}
}

func TestReadStart(t *testing.T) {
	const content = "0123456789"
	for _, tc := range []struct {
		reason string
		ranges bool
		n      int64
		want   string
	}{
		{"a range", true, 4, "0123"},
		{"the whole file", true, 10, content},
		{"a server that ignores ranges", false, 4, "0123"},
		{"more than a server without ranges has", false, 11, ""},
		{"more than a server with ranges has", true, 11, ""},
		{"nothing is no range", true, 0, ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if !tc.ranges {
					r.Header.Del("Range")
				}
				http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
			})
			got, err := newTestClient(t, s.URL).ReadStart(t.Context(), File{testRepo, "main", "a"}, tc.n)
			if string(got) != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("ReadStart(%d) = %q, %v; want %q", tc.n, got, err, tc.want)
			}
		})
	}
}

// A trickling response must end at the deadline of the call, because it is never silent.
func TestReadStartOutlastsNoTrickle(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Range", strings.Replace(r.Header.Get("Range"), "=", " ", 1)+"/1000")
		w.WriteHeader(http.StatusPartialContent)
		for r.Context().Err() == nil {
			fmt.Fprint(w, "\x00")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(40 * time.Millisecond):
			}
		}
	})
	c := newTestClient(t, s.URL, func(o *Options) { o.AnswerTimeout = 100 * time.Millisecond })
	_, err := c.ReadStart(t.Context(), File{testRepo, "main", "a"}, 1000)
	away, ok := errors.AsType[*UnreachableError](err)
	if !ok || !errors.Is(away.Err, errNoAnswer) {
		t.Errorf("ReadStart() = %v, want an UnreachableError for no answer", err)
	}
}
