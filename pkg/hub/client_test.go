// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const (
	testRepo   = "org/model"
	testCommit = "0123456789abcdef0123456789abcdef01234567"
	testSHA256 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	testToken  = "hf_secret"
)

// newTestClient returns a client of the given server with short time limits.
func newTestClient(t *testing.T, endpoint string, change ...func(*Options)) *Client {
	t.Helper()
	o := Options{
		Endpoint: endpoint, HTTP: NewHTTPClient(4), Token: testToken,
		AnswerTimeout: 5 * time.Second, IdleTimeout: 5 * time.Second,
	}
	for _, f := range change {
		f(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func TestNewRefuses(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		options Options
		want    string
	}{
		{"no client", Options{}, "Options.HTTP is nil"},
		{"a total timeout cuts long files", Options{HTTP: &http.Client{Timeout: time.Second}}, "leave it 0"},
		{"a password would end up in messages", Options{HTTP: http.DefaultClient, Endpoint: "https://u:pw@h"}, "carries a user name"},
		{"another scheme", Options{HTTP: http.DefaultClient, Endpoint: "ftp://h"}, "is not a web address"},
		{"a bare host", Options{HTTP: http.DefaultClient, Endpoint: "huggingface.co"}, "is not a web address"},
		{"not a URL", Options{HTTP: http.DefaultClient, Endpoint: "http://u:pw@[::1"}, "is not a URL"},
		{"a query", Options{HTTP: http.DefaultClient, Endpoint: "http://h?a=b"}, "query or fragment"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := New(tc.options)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("New() = %v, want an error with %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "pw") {
				t.Errorf("error shows the password: %v", err)
			}
		})
	}
}

func TestEndpoint(t *testing.T) {
	for _, tc := range []struct {
		reason, endpoint, want string
	}{
		{"empty means the public hub", "", "https://huggingface.co/api/models/org/model/revision/refs%2Fpr%2F1"},
		{"a trailing slash is dropped", "http://mirror:8080/", "http://mirror:8080/api/models/org/model/revision/refs%2Fpr%2F1"},
		{"a path prefix stays", "http://mirror/hf/", "http://mirror/hf/api/models/org/model/revision/refs%2Fpr%2F1"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			c := newTestClient(t, tc.endpoint)
			if got := c.modelURL(File{Repo: testRepo, Revision: "refs/pr/1"}, "revision"); got != tc.want {
				t.Errorf("modelURL() = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestResolveURLEscapesEachElement(t *testing.T) {
	c := newTestClient(t, "http://h")
	got := c.resolveURL(File{Repo: testRepo, Revision: "a/b", Path: "dir/with space?.gguf"})
	if want := "http://h/org/model/resolve/a%2Fb/dir/with%20space%3F.gguf"; got != want {
		t.Errorf("resolveURL() = %q, want %q", got, want)
	}
}
