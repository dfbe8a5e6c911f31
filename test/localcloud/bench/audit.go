// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Request is one request, from a line of the API server's audit log.
type Request struct {
	Verb  string
	Stage string
	User  struct{ Username string }
	// Object is the request's object.
	Object struct {
		APIGroup, Resource, Subresource, Namespace, Name string
	} `json:"objectRef"`
	URI      string             `json:"requestURI"`
	Response struct{ Code int } `json:"responseStatus"`
	// Received and Done are when the server took the request and when it had answered.
	Received time.Time `json:"requestReceivedTimestamp"`
	Done     time.Time `json:"stageTimestamp"`
	// Sent is the object or merge patch, if the policy keeps it and the server accepted.
	Sent Sent `json:"-"`
}

// Sent is the part read of an object or a merge patch. A merge patch replaces lists: if it has conditions, it has
// all.
type Sent struct {
	Metadata struct{ Labels map[string]string }
	Status   struct{ Conditions []metav1.Condition }
}

// resource names the request's resource in a role's form.
func (r Request) resource() string {
	switch {
	case r.Object.Resource == "":
		return "(discovery)"
	case r.Object.Subresource == "":
		return r.Object.Resource
	}
	return r.Object.Resource + "/" + r.Object.Subresource
}

// isComplete reports whether this is its request's one line to count: an early one for a watch, as a watch completes
// only at its end.
func (r Request) isComplete() bool {
	return (r.Stage == "ResponseComplete") != (r.Verb == "watch")
}

// isDryRun reports whether the server stored nothing.
func (r Request) isDryRun() bool { return strings.Contains(r.URI, "dryRun=") }

func (r Request) isAccepted() bool { return r.Response.Code >= 200 && r.Response.Code < 300 }

func (r Request) isTrue(condition string) bool {
	return slices.ContainsFunc(r.Sent.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == condition && c.Status == metav1.ConditionTrue
	})
}

// Log reads an audit log as it grows.
type Log struct {
	file    *os.File
	reader  *bufio.Reader
	partial []byte
	lines   int
}

// OpenLog starts at the beginning of the log. Close ends it.
func OpenLog(path string) (*Log, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	return &Log{file: file, reader: bufio.NewReaderSize(file, 1<<20)}, nil
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }

// Read returns the requests logged since the last call.
func (l *Log) Read() ([]Request, error) {
	var requests []Request
	for {
		line, err := l.reader.ReadBytes('\n')
		l.partial = append(l.partial, line...)
		if errors.Is(err, io.EOF) {
			return requests, nil // the rest of the line comes later
		}
		if err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		l.lines++
		request, err := parse(l.partial)
		if err != nil {
			return nil, fmt.Errorf("line %d of the audit log: %w", l.lines, err)
		}
		l.partial = nil
		if request.isComplete() {
			requests = append(requests, request)
		}
	}
}

func parse(line []byte) (Request, error) {
	var request struct {
		Request

		Body json.RawMessage `json:"requestObject"`
	}
	if err := json.Unmarshal(line, &request); err != nil {
		return Request{}, err
	}
	if len(request.Body) > 0 && request.isAccepted() {
		if err := json.Unmarshal(request.Body, &request.Sent); err != nil {
			return Request{}, fmt.Errorf("its body: %w", err)
		}
	}
	return request.Request, nil
}
