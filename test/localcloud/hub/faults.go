// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Routes, to limit a fault to.
const (
	RouteAPI      = "api"      // revisions and trees
	RouteMetadata = "metadata" // HEAD of a file
	RouteContent  = "content"  // GET of a file's bytes
)

// Fault is one way to break. All selecting fields with a value must match; of several matching faults the first one
// acts.
type Fault struct {
	// Repo, File and Route select requests; empty matches every one.
	Repo  string `json:"repo,omitempty"`
	File  string `json:"file,omitempty"`
	Route string `json:"route,omitempty"`
	// Times is how many requests are hit, 0 for all of them.
	Times int `json:"times,omitempty"`

	// Outage closes the connection without an answer, like a hub that is down.
	Outage bool `json:"outage,omitempty"`
	// DelayMillis passes before anything else happens.
	DelayMillis int `json:"delayMillis,omitempty"`
	// Status is answered instead of the content, with the hub's error headers.
	Status       int    `json:"status,omitempty"`
	ErrorCode    string `json:"errorCode,omitempty"`
	ErrorMessage string `json:"errorMessage,omitempty"`
	RetryAfter   int    `json:"retryAfter,omitempty"`
	// WrongBytes alters the first byte of every answer's content.
	WrongBytes bool `json:"wrongBytes,omitempty"`
	// CutAfter ends the connection after this many bytes of content.
	CutAfter int64 `json:"cutAfter,omitempty"`
	// BytesPerSecond slows the content down.
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
	// ClaimBytes is the stated size of large files, in trees and metadata, regardless of the real one.
	ClaimBytes int64 `json:"claimBytes,omitempty"`
}

// check refuses a fault without effect.
func (f Fault) check() error {
	switch f.Route {
	case "", RouteAPI, RouteMetadata, RouteContent:
	default:
		return fmt.Errorf("route is %q: use %s, %s, %s or none", f.Route, RouteAPI, RouteMetadata, RouteContent)
	}
	effects := f
	effects.Repo, effects.File, effects.Route, effects.Times = "", "", "", 0
	if effects == (Fault{}) {
		return fmt.Errorf("fault has no effect: set outage, status, delayMillis, wrongBytes, cutAfter, bytesPerSecond or claimBytes")
	}
	if f.Status != 0 && (f.Status < 400 || f.Status > 599) {
		return fmt.Errorf("status is %d: use 400 to 599", f.Status)
	}
	return nil
}

// target is a request's subject, as far as faults distinguish requests.
type target struct{ repo, file, route string }

// classify reads the target from the path; paths have few forms.
func classify(r *http.Request) target {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 5)
	at := func(i int) string {
		if i < len(parts) {
			return parts[i]
		}
		return ""
	}
	route := RouteContent
	if r.Method == http.MethodHead {
		route = RouteMetadata
	}
	switch {
	case at(0) == "api":
		return target{repo: at(2) + "/" + at(3), route: RouteAPI}
	case at(0) == "store":
		return target{repo: at(1) + "/" + at(2), file: at(4), route: route}
	}
	return target{repo: at(0) + "/" + at(1), file: at(4), route: route}
}

type faults struct {
	mu     sync.Mutex
	active []Fault
	hits   []int
}

func (f *faults) match(t target) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, fault := range f.active {
		// A tree is about every file, so a claim of one file's size is about it.
		file := fault.File
		if fault.ClaimBytes > 0 && t.route == RouteAPI {
			file = ""
		}
		switch {
		case fault.Repo != "" && fault.Repo != t.repo,
			file != "" && file != t.file,
			fault.Route != "" && fault.Route != t.route,
			fault.Times > 0 && f.hits[i] >= fault.Times:
			continue
		}
		f.hits[i]++
		return fault, true
	}
	return Fault{}, false
}

func (f *faults) replace(with []Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active, f.hits = with, make([]int, len(with))
}

type faultKey struct{}

// claimedSize is the size to state for a large file.
func claimedSize(r *http.Request, f file) int64 {
	fault, ok := r.Context().Value(faultKey{}).(Fault)
	if ok && fault.ClaimBytes > 0 && (fault.File == "" || fault.File == f.path) {
		return fault.ClaimBytes
	}
	return int64(len(f.data))
}

type faultList struct {
	Faults []Fault `json:"faults"`
}

func (h *Hub) serveFaults(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
	case http.MethodDelete:
		h.faults.replace([]Fault{})
	case http.MethodPost, http.MethodPut:
		var list faultList
		if err := decodeFaults(r.Body, &list); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		h.faults.replace(list.Faults)
	default:
		http.Error(w, "use GET, POST or DELETE", http.StatusMethodNotAllowed)
		return
	}
	h.faults.mu.Lock()
	list := faultList{Faults: append([]Fault{}, h.faults.active...)}
	h.faults.mu.Unlock()
	writeJSON(w, list)
}

const maxFaults = 1 << 20

func decodeFaults(body io.Reader, list *faultList) error {
	d := json.NewDecoder(io.LimitReader(body, maxFaults))
	d.DisallowUnknownFields()
	if err := d.Decode(list); err != nil {
		return fmt.Errorf(`decoding faults, want {"faults":[…]}: %w`, err)
	}
	for i, f := range list.Faults {
		if err := f.check(); err != nil {
			return fmt.Errorf("fault %d: %w", i, err)
		}
	}
	return nil
}

// begin does everything before the content, and returns the writer for it.
func (f Fault) begin(w http.ResponseWriter, r *http.Request) (out http.ResponseWriter, answered bool) {
	if f.DelayMillis > 0 && !pause(r, time.Duration(f.DelayMillis)*time.Millisecond) {
		return w, true
	}
	if f.Outage {
		panic(http.ErrAbortHandler)
	}
	if f.Status != 0 {
		if f.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
		}
		refuse(w, f.Status, f.ErrorCode, f.ErrorMessage)
		return w, true
	}
	if !f.WrongBytes && f.CutAfter == 0 && f.BytesPerSecond == 0 {
		return w, false
	}
	return &faultyWriter{ResponseWriter: w, request: r, fault: f}, false
}

// pause returns false when the caller has left meanwhile.
func pause(r *http.Request, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.Context().Done():
		return false
	case <-timer.C:
		return true
	}
}

// faultyWriter sends content badly. Answers without content pass unharmed.
type faultyWriter struct {
	http.ResponseWriter
	request *http.Request
	fault   Fault
	sent    int64
	status  int
}

func (w *faultyWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// sliceBytes is how much of a slow answer goes out at a time.
const sliceBytes = 4 << 10

func (w *faultyWriter) Write(b []byte) (int, error) {
	if w.status >= http.StatusMultipleChoices {
		return w.ResponseWriter.Write(b)
	}
	total := 0
	for len(b) > 0 {
		n := min(len(b), sliceBytes)
		if err := w.writeSlice(b[:n]); err != nil {
			return total, err
		}
		total, b = total+n, b[n:]
	}
	return total, nil
}

func (w *faultyWriter) writeSlice(b []byte) error {
	if w.fault.WrongBytes && w.sent == 0 {
		b = append([]byte{b[0] ^ 0xff}, b[1:]...)
	}
	cut := w.fault.CutAfter > 0 && w.sent+int64(len(b)) > w.fault.CutAfter
	if cut {
		b = b[:w.fault.CutAfter-w.sent]
	}
	n, err := w.ResponseWriter.Write(b)
	w.sent += int64(n)
	if err != nil {
		return err
	}
	if cut {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	if w.fault.BytesPerSecond == 0 {
		return nil
	}
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	if !pause(w.request, time.Duration(n)*time.Second/time.Duration(w.fault.BytesPerSecond)) {
		return w.request.Context().Err()
	}
	return nil
}
