// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// largeFile is the smallest size of a file in the content store (LFS); smaller ones are in git itself.
const largeFile = 10_000

// Branch is the only branch of every repository.
const Branch = "main"

// Files are the files of one repository by path.
type Files map[string][]byte

// Hub serves repositories. It is safe for concurrent use.
type Hub struct {
	// repos make themselves when they are first asked for: there are many, and few are.
	repos     map[string]func() repository
	faults    faults
	mux       *http.ServeMux
	requests  atomic.Int64
	sentBytes atomic.Int64
}

type repository struct {
	commit string
	files  []file
	// anyCommit gives the repository every commit, with the same files.
	anyCommit bool
}

type file struct {
	path, sha256, oid string
	data              []byte
}

func (f file) isLarge() bool { return len(f.data) >= largeFile }

// New returns a hub with the given repositories, by ORG/NAME. Stand-ins are repositories of models from elsewhere:
// they have every commit, so a catalogue finds the one it pins.
func New(repos, standIns map[string]Files) *Hub {
	h := &Hub{repos: map[string]func() repository{}}
	for name, files := range repos {
		h.repos[name] = sync.OnceValue(func() repository { return newRepository(files) })
	}
	for name, files := range standIns {
		h.repos[name] = sync.OnceValue(func() repository {
			repo := newRepository(files)
			repo.anyCommit = true
			return repo
		})
	}
	h.mux = h.routes()
	return h
}

// routes are one mux per first element, because a mux alone cannot distinguish ORG/NAME/… from the others.
func (h *Hub) routes() *http.ServeMux {
	api, files, root := http.NewServeMux(), http.NewServeMux(), http.NewServeMux()
	api.HandleFunc("GET /api/models/{org}/{name}", h.serveInfo)
	api.HandleFunc("GET /api/models/{org}/{name}/revision/{revision}", h.serveInfo)
	api.HandleFunc("GET /api/models/{org}/{name}/tree/{revision}", h.serveTree)
	files.HandleFunc("GET /{org}/{name}/resolve/{revision}/{path...}", h.serveFile)
	root.Handle("/api/", api)
	root.Handle("/", files)
	root.HandleFunc("GET /store/{org}/{name}/{revision}/{path...}", h.serveStore)
	root.HandleFunc("/admin/faults", h.serveFaults)
	root.HandleFunc("GET /admin/stats", h.serveStats)
	return root
}

func newRepository(files Files) repository {
	var r repository
	tree := sha1.New()
	for path, data := range files {
		sum := sha256.Sum256(data)
		r.files = append(r.files, file{path: path, data: data, sha256: hex.EncodeToString(sum[:]), oid: gitBlob(data)})
	}
	slices.SortFunc(r.files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	for _, f := range r.files {
		fmt.Fprintf(tree, "%s %s\n", f.sha256, f.path)
	}
	// Not git's way to name a commit, but as unambiguous.
	r.commit = hex.EncodeToString(tree.Sum(nil))
	return r
}

func gitBlob(data []byte) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", len(data))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

// ServeHTTP breaks if a fault matches, and answers otherwise.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/admin/") {
		h.mux.ServeHTTP(w, r)
		return
	}
	h.requests.Add(1)
	fault, found := h.faults.match(classify(r))
	if !found {
		fault = Fault{}
	}
	out, answered := fault.begin(w, r)
	if answered {
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), faultKey{}, fault))
	h.mux.ServeHTTP(&counter{out, &h.sentBytes}, r)
}

// counter counts the bytes sent.
type counter struct {
	http.ResponseWriter
	bytes *atomic.Int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.bytes.Add(int64(n))
	return n, err
}

// find returns a request's repository; it answers on its own if the repository or revision is missing.
func (h *Hub) find(w http.ResponseWriter, r *http.Request) (string, repository, bool) {
	name := r.PathValue("org") + "/" + r.PathValue("name")
	made, ok := h.repos[name]
	if !ok {
		refuse(w, http.StatusNotFound, "RepoNotFound", "Repository not found")
		return name, repository{}, false
	}
	repo := made()
	revision := r.PathValue("revision")
	if repo.anyCommit && isCommit(revision) {
		repo.commit = revision
	}
	if revision != "" && revision != Branch && revision != repo.commit {
		refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
		return name, repo, false
	}
	return name, repo, true
}

// isCommit reports whether a revision is git's name of a commit and not of a branch.
func isCommit(revision string) bool {
	sum, err := hex.DecodeString(revision)
	return err == nil && len(sum) == sha1.Size
}

func (h *Hub) findFile(w http.ResponseWriter, r *http.Request) (repository, file, bool) {
	_, repo, ok := h.find(w, r)
	if !ok {
		return repo, file{}, false
	}
	path := r.PathValue("path")
	at := slices.IndexFunc(repo.files, func(f file) bool { return f.path == path })
	if at < 0 {
		refuse(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
		return repo, file{}, false
	}
	return repo, repo.files[at], true
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("X-Error-Code", code)
	w.Header().Set("X-Error-Message", message)
	http.Error(w, message, status)
}

func (h *Hub) serveInfo(w http.ResponseWriter, r *http.Request) {
	name, repo, ok := h.find(w, r)
	if !ok {
		return
	}
	type sibling struct {
		Name string `json:"rfilename"`
	}
	siblings := []sibling{}
	for _, f := range repo.files {
		siblings = append(siblings, sibling{f.path})
	}
	writeJSON(w, struct {
		ID       string    `json:"id"`
		SHA      string    `json:"sha"`
		Private  bool      `json:"private"`
		Gated    bool      `json:"gated"`
		Siblings []sibling `json:"siblings"`
	}{ID: name, SHA: repo.commit, Siblings: siblings})
}

type lfs struct {
	OID         string `json:"oid"`
	Size        int64  `json:"size"`
	PointerSize int    `json:"pointerSize"`
}

type entry struct {
	Type string `json:"type"`
	OID  string `json:"oid"`
	Size int64  `json:"size"`
	Path string `json:"path"`
	LFS  *lfs   `json:"lfs,omitempty"`
}

// serveTree lists every file, whether recursively or not: a listing without directories lacks nothing for a client.
func (h *Hub) serveTree(w http.ResponseWriter, r *http.Request) {
	_, repo, ok := h.find(w, r)
	if !ok {
		return
	}
	entries := []entry{}
	for _, f := range repo.files {
		e := entry{Type: "file", OID: f.oid, Size: int64(len(f.data)), Path: f.path}
		if f.isLarge() {
			e.Size = claimedSize(r, f)
			e.LFS = &lfs{OID: f.sha256, Size: e.Size, PointerSize: pointerSize}
		}
		entries = append(entries, e)
	}
	writeJSON(w, entries)
}

// pointerSize is the usual size of git-lfs's stand-in for a large file.
const pointerSize = 134

// serveFile sends small files itself and large ones from the store.
func (h *Hub) serveFile(w http.ResponseWriter, r *http.Request) {
	repo, f, ok := h.findFile(w, r)
	if !ok {
		return
	}
	w.Header().Set("X-Repo-Commit", repo.commit)
	if !f.isLarge() {
		w.Header().Set("ETag", `"`+f.oid+`"`)
		sendContent(w, r, f)
		return
	}
	w.Header().Set("X-Linked-Etag", `"`+f.sha256+`"`)
	w.Header().Set("X-Linked-Size", fmt.Sprint(claimedSize(r, f)))
	// An absolute address, as the real hub's: clients take it for another host's.
	w.Header().Set("Location", fmt.Sprintf("http://%s/store/%s/%s/%s/%s",
		r.Host, r.PathValue("org"), r.PathValue("name"), repo.commit, f.path))
	w.WriteHeader(http.StatusFound)
}

func (h *Hub) serveStore(w http.ResponseWriter, r *http.Request) {
	if _, f, ok := h.findFile(w, r); ok {
		w.Header().Set("ETag", `"`+f.sha256+`"`)
		sendContent(w, r, f)
	}
}

func sendContent(w http.ResponseWriter, r *http.Request, f file) {
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.data))
}

func (h *Hub) serveStats(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, Stats{Requests: h.requests.Load(), SentBytes: h.sentBytes.Load()})
}

// Stats are totals since the start, without requests to /admin.
type Stats struct {
	Requests  int64 `json:"requests"`
	SentBytes int64 `json:"sentBytes"`
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	// A caller who left early is no failure of ours.
	_ = json.NewEncoder(w).Encode(v)
}
