// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	repo    = "org/model"
	standIn = "org/elsewhere"
)

func large() []byte {
	b := make([]byte, 50_000)
	for i := range b {
		b[i] = byte(i * 31 >> 3)
	}
	return b
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

type answer struct {
	status int
	header http.Header
	body   []byte
	err    error
}

type site struct {
	t      *testing.T
	url    string
	commit string
}

func newSite(t *testing.T) site {
	t.Helper()
	h := New(map[string]Files{repo: {"big.gguf": large(), "dir/small.json": []byte("hello\n")}}, map[string]Files{standIn: {"config.json": []byte("{}")}})
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return site{t: t, url: s.URL, commit: h.repos[repo]().commit}
}

func TestStandInHasEveryCommit(t *testing.T) {
	s := newSite(t)
	for _, test := range []struct {
		reason, repo, revision string
		want                   int
	}{
		{"the branch", standIn, Branch, http.StatusOK},
		{"a commit that the catalogue pins", standIn, strings.Repeat("ab", 20), http.StatusOK},
		{"a branch that there is not", standIn, "gguf", http.StatusNotFound},
		{"a commit of a repository of the hub's own", repo, strings.Repeat("ab", 20), http.StatusNotFound},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got := s.ask(http.MethodGet, "/api/models/"+test.repo+"/tree/"+test.revision, "")
			if got.status != test.want {
				t.Errorf("the list of files: %d, want %d", got.status, test.want)
			}
			file := s.ask(http.MethodGet, "/"+test.repo+"/resolve/"+test.revision+"/config.json", "")
			if commit := file.header.Get("X-Repo-Commit"); test.want == http.StatusOK && isCommit(test.revision) && commit != test.revision {
				t.Errorf("a file of commit %s is said to be of %s", test.revision, commit)
			}
		})
	}
}

// ask sends one request and follows no redirect.
func (s site) ask(method, path, body string, header ...string) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, b, err}
}

func (s site) breakIt(faults string) {
	s.t.Helper()
	if a := s.ask("POST", "/admin/faults", `{"faults":[`+faults+`]}`); a.status != http.StatusOK {
		s.t.Fatalf("POST /admin/faults = %d %s %v", a.status, a.body, a.err)
	}
}

func TestAPI(t *testing.T) {
	s := newSite(t)
	info := fmt.Sprintf(`{"id":"org/model","sha":%q,"private":false,"gated":false,"siblings":[{"rfilename":"big.gguf"},{"rfilename":"dir/small.json"}]}`, s.commit)
	tree := fmt.Sprintf(`[{"type":"file","oid":%q,"size":50000,"path":"big.gguf","lfs":{"oid":%q,"size":50000,"pointerSize":134}},`+
		`{"type":"file","oid":"ce013625030ba8dba906f756967f9e9ca394464a","size":6,"path":"dir/small.json"}]`, gitBlob(large()), sum(large()))
	for _, tc := range []struct {
		reason, path string
		status       int
		code, body   string
	}{
		{"a repository", "/api/models/org/model", 200, "", info},
		{"a branch", "/api/models/org/model/revision/main", 200, "", info},
		{"a commit", "/api/models/org/model/revision/" + s.commit, 200, "", info},
		{"a tree", "/api/models/org/model/tree/main?recursive=true", 200, "", tree},
		{"no such repository", "/api/models/org/other/revision/main", 404, "RepoNotFound", "Repository not found"},
		{"no such revision", "/api/models/org/model/revision/v2", 404, "RevisionNotFound", "Invalid rev id: v2"},
		{"no such revision's tree", "/api/models/org/model/tree/v2", 404, "RevisionNotFound", "Invalid rev id: v2"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			a := s.ask("GET", tc.path, "")
			got := []any{a.status, a.header.Get("X-Error-Code"), strings.TrimSpace(string(a.body))}
			if diff := cmp.Diff([]any{tc.status, tc.code, tc.body}, got); diff != "" {
				t.Errorf("GET %s (-want +got):\n%s", tc.path, diff)
			}
		})
	}
}

func TestFiles(t *testing.T) {
	s := newSite(t)
	store := s.url + "/store/org/model/" + s.commit + "/big.gguf"
	for _, tc := range []struct {
		reason, method, path, ranges string
		status                       int
		header                       map[string]string
		body                         []byte
	}{
		{
			"a large file points to the store and says what it is", "HEAD", "/org/model/resolve/main/big.gguf", "", 302,
			map[string]string{"X-Repo-Commit": s.commit, "X-Linked-Etag": `"` + sum(large()) + `"`, "X-Linked-Size": "50000", "Location": store},
			nil,
		},
		{"the same for GET", "GET", "/org/model/resolve/main/big.gguf", "bytes=1-2", 302, map[string]string{"Location": store}, nil},
		{"the store has all of it", "GET", strings.TrimPrefix(store, s.url), "", 200, nil, large()},
		{"and any part", "GET", strings.TrimPrefix(store, s.url), "bytes=100-199", 206, map[string]string{"Content-Range": "bytes 100-199/50000"}, large()[100:200]},
		{
			"a small file comes directly", "GET", "/org/model/resolve/main/dir/small.json", "", 200,
			map[string]string{"X-Repo-Commit": s.commit, "ETag": `"ce013625030ba8dba906f756967f9e9ca394464a"`, "X-Linked-Etag": ""},
			[]byte("hello\n"),
		},
		{"its size is known beforehand", "HEAD", "/org/model/resolve/main/dir/small.json", "", 200, map[string]string{"Content-Length": "6"}, nil},
		{"no such file", "HEAD", "/org/model/resolve/main/other", "", 404, map[string]string{"X-Error-Code": "EntryNotFound"}, nil},
		{"no such revision", "HEAD", "/org/model/resolve/v2/big.gguf", "", 404, map[string]string{"X-Error-Code": "RevisionNotFound"}, nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			a := s.ask(tc.method, tc.path, "", "Range", tc.ranges)
			if a.status != tc.status || !bytes.Equal(a.body, tc.body) {
				t.Errorf("%s %s = %d with %d bytes, want %d with %d", tc.method, tc.path, a.status, len(a.body), tc.status, len(tc.body))
			}
			for name, want := range tc.header {
				if got := a.header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestFaults(t *testing.T) {
	const content = "/org/model/resolve/main/dir/small.json"
	for _, tc := range []struct {
		reason, faults string
		// asks are sent in order; want are their bodies, or the status where
		// it is not 200, or "broken".
		asks []string
		want []string
	}{
		{"none", ``, []string{"GET " + content}, []string{"hello\n"}},
		{"an outage", `{"outage":true}`, []string{"GET " + content, "GET /api/models/org/model"}, []string{"broken", "broken"}},
		{"a status, twice", `{"status":503,"times":2}`, []string{"GET " + content, "GET " + content, "GET " + content}, []string{"503", "503", "hello\n"}},
		{"one route", `{"route":"metadata","status":500}`, []string{"HEAD " + content, "GET " + content}, []string{"500", "hello\n"}},
		{"the API only", `{"route":"api","status":500}`, []string{"GET /api/models/org/model", "GET " + content}, []string{"500", "hello\n"}},
		{"one file", `{"file":"big.gguf","status":500}`, []string{"GET " + content, "GET /org/model/resolve/main/big.gguf"}, []string{"hello\n", "500"}},
		{"another repository", `{"repo":"org/other","outage":true}`, []string{"GET " + content}, []string{"hello\n"}},
		{"the first that matches acts", `{"file":"x","outage":true},{"status":418},{"status":500}`, []string{"GET " + content}, []string{"418"}},
		{"wrong bytes", `{"wrongBytes":true}`, []string{"GET " + content}, []string{"\x97ello\n"}},
		{"a cut", `{"cutAfter":3}`, []string{"GET " + content}, []string{"broken after hel"}},
		{"slowness changes no byte", `{"bytesPerSecond":1000000,"delayMillis":1}`, []string{"GET " + content}, []string{"hello\n"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := newSite(t)
			s.breakIt(tc.faults)
			var got []string
			for _, ask := range tc.asks {
				method, path, _ := strings.Cut(ask, " ")
				got = append(got, describe(s.ask(method, path, "")))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
			s.ask("DELETE", "/admin/faults", "")
			if got := describe(s.ask("GET", content, "")); got != "hello\n" {
				t.Errorf("after healing: %q", got)
			}
		})
	}
}

func describe(a answer) string {
	switch {
	case a.err != nil && len(a.body) > 0:
		return "broken after " + string(a.body)
	case a.err != nil:
		return "broken"
	case a.status != http.StatusOK:
		return fmt.Sprint(a.status)
	}
	return string(a.body)
}

func TestFaultHeaders(t *testing.T) {
	s := newSite(t)
	s.breakIt(`{"status":403,"errorCode":"GatedRepo","errorMessage":"Access is restricted","retryAfter":5}`)
	a := s.ask("GET", "/org/model/resolve/main/big.gguf", "")
	got := []any{a.status, a.header.Get("X-Error-Code"), a.header.Get("X-Error-Message"), a.header.Get("Retry-After")}
	if diff := cmp.Diff([]any{403, "GatedRepo", "Access is restricted", "5"}, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestClaimedSize(t *testing.T) {
	s := newSite(t)
	s.breakIt(`{"file":"big.gguf","claimBytes":1099511627776}`)
	const want = "1099511627776"
	if got := s.ask("HEAD", "/org/model/resolve/main/big.gguf", "").header.Get("X-Linked-Size"); got != want {
		t.Errorf("HEAD states %q bytes, want %s", got, want)
	}
	if tree := s.ask("GET", "/api/models/org/model/tree/main", ""); !strings.Contains(string(tree.body), `"size":`+want) {
		t.Errorf("tree %s does not state %s bytes", tree.body, want)
	}
	if a := s.ask("GET", "/org/model/resolve/main/dir/small.json", ""); string(a.body) != "hello\n" {
		t.Errorf("another file is answered with %d %q", a.status, a.body)
	}
}

func TestSlow(t *testing.T) {
	s := newSite(t)
	s.breakIt(`{"bytesPerSecond":200000}`)
	began := time.Now()
	a := s.ask("GET", "/store/org/model/main/big.gguf", "")
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("50 kB at 200 kB/s took %s", took)
	}
	if !bytes.Equal(a.body, large()) {
		t.Error("content differs")
	}
}

func TestAdminRefuses(t *testing.T) {
	s := newSite(t)
	for _, tc := range []struct{ reason, body, want string }{
		{"not JSON", `x`, "decoding faults"},
		{"a misspelt field", `{"faults":[{"statuscode":500}]}`, "unknown field"},
		{"no effect", `{"faults":[{"repo":"org/model"}]}`, "fault 0: fault has no effect"},
		{"an unknown route", `{"faults":[{"outage":true},{"route":"cdn","status":500}]}`, `fault 1: route is "cdn"`},
		{"a status that is no failure", `{"faults":[{"status":200}]}`, "status is 200"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			a := s.ask("POST", "/admin/faults", tc.body)
			if a.status != http.StatusBadRequest || !strings.Contains(string(a.body), tc.want) {
				t.Errorf("POST = %d %q, want 400 with %q", a.status, a.body, tc.want)
			}
		})
	}
	if a := s.ask("PATCH", "/admin/faults", ""); a.status != http.StatusMethodNotAllowed {
		t.Errorf("PATCH = %d, want 405", a.status)
	}
	if a := s.ask("GET", "/admin/faults", ""); strings.TrimSpace(string(a.body)) != `{"faults":[]}` {
		t.Errorf("GET = %s, want no faults", a.body)
	}
}

func TestStats(t *testing.T) {
	s := newSite(t)
	s.ask("GET", "/org/model/resolve/main/dir/small.json", "")
	s.ask("HEAD", "/org/model/resolve/main/dir/small.json", "")
	s.ask("GET", "/admin/faults", "")
	var got Stats
	if err := json.Unmarshal(s.ask("GET", "/admin/stats", "").body, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Stats{Requests: 2, SentBytes: 6}, got); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}
