// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInfo(t *testing.T) {
	for _, tc := range []struct {
		reason, answer string
		want           Info
	}{
		{
			"open, with a known licence",
			`{"sha": "` + testCommit + `", "gated": false, "cardData": {"license": "apache-2.0", "license_name": "x"}}`,
			Info{Commit: testCommit, License: "apache-2.0"},
		},
		{
			"gated, with a licence of its own that would break a line",
			`{"sha": "` + testCommit + `", "gated": "manual", "cardData": {"license": "other", "license_name": "their\nown"}}`,
			Info{Commit: testCommit, Gated: true, License: "their own"},
		},
		{
			"other without a name stays other",
			`{"sha": "` + testCommit + `", "cardData": {"license": "other"}}`,
			Info{Commit: testCommit, License: "other"},
		},
		{
			"a list of licences names none",
			`{"sha": "` + testCommit + `", "gated": "auto", "cardData": {"license": ["mit", "apache-2.0"]}}`,
			Info{Commit: testCommit, Gated: true},
		},
		{"nothing but the commit", `{"sha": "` + testCommit + `"}`, Info{Commit: testCommit}},
		{"an answer without a commit is no hub's", `{"sha": "main", "gated": "auto", "cardData": {"license": "mit"}}`, Info{}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, tc.answer) })
			got, err := newTestClient(t, s.URL).Info(t.Context(), testRepo, "main")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Info() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLacksAPI(t *testing.T) {
	for _, tc := range []struct {
		reason string
		status int
		code   string
		want   bool
	}{
		{"a page where JSON should be", 200, "", true},
		{"a plain file server's 404", 404, "", true},
		{"a server that knows GET of files only", 405, "", true},
		{"an API that is not implemented", 501, "", true},
		{"a hub that does not have the repository", 404, "RepoNotFound", false},
		{"a hub that does not have the revision", 404, "RevisionNotFound", false},
		{"a hub that refuses", 401, "GatedRepo", false},
		{"a hub that is overloaded", 429, "", false},
		{"a hub that is broken", 500, "", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if tc.code != "" {
					w.Header().Set("X-Error-Code", tc.code)
				}
				w.WriteHeader(tc.status)
				fmt.Fprint(w, "<html>")
			})
			c := newTestClient(t, s.URL)
			_, ofInfo := c.Info(t.Context(), testRepo, "main")
			_, ofTree := c.Tree(t.Context(), testRepo, "main")
			if ofInfo == nil || ofTree == nil || LacksAPI(ofInfo) != tc.want || LacksAPI(ofTree) != tc.want {
				t.Errorf("LacksAPI(%v) = %t, LacksAPI(%v) = %t; want %t", ofInfo, LacksAPI(ofInfo), ofTree, LacksAPI(ofTree), tc.want)
			}
		})
	}
	if LacksAPI(nil) {
		t.Error("LacksAPI(nil) = true, want false")
	}
}
