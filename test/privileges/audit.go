// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package privileges

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// Policy is the audit policy for Read: one line for each request of the accounts installed in the cluster.
const Policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  userGroups: ["system:serviceaccounts:kube-system"]
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
`

// Request is one line of the API server's audit log.
type Request struct {
	Verb      string
	Stage     string
	StageTime time.Time `json:"stageTimestamp"`
	User      struct {
		Username string
		Extra    map[string][]string
	}
	ObjectRef struct {
		APIGroup, Resource, Subresource, Namespace, Name string
	}
	ResponseStatus struct {
		Code    int
		Message string
	}
}

// Pod returns the name of the pod behind the request's token; empty if it was no pod's.
func (r Request) Pod() string {
	if names := r.User.Extra["authentication.kubernetes.io/pod-name"]; len(names) > 0 {
		return names[0]
	}
	return ""
}

// Privilege names the request's group, resource and verb as a role does.
func (r Request) Privilege() string {
	resource := r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		resource += "/" + r.ObjectRef.Subresource
	}
	return privilege(r.ObjectRef.APIGroup, resource, r.Verb)
}

// IsWrite reports whether a request writes. It leaves out the election of a leader, with its constant writes of a
// Lease, and Events: they report changes and are none.
func (r Request) IsWrite() bool {
	return !slices.Contains([]string{"get", "list", "watch"}, r.Verb) &&
		!slices.Contains([]string{"leases", "events"}, r.ObjectRef.Resource)
}

// isAnswered reports whether the line tells how a request ended. A watch counts from its beginning: it ends late.
func (r Request) isAnswered() bool {
	return (r.Stage == "ResponseComplete") != (r.Verb == "watch") || r.IsForbidden()
}

// Read returns the requests of a user, in order, from the API server's log file.
func Read(path, user string) ([]Request, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	var requests []Request
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for line := 1; scanner.Scan(); line++ {
		var r Request
		if err := json.Unmarshal(scanner.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("line %d of the audit log: %w", line, err)
		}
		if r.User.Username == user && r.isAnswered() {
			requests = append(requests, r)
		}
	}
	return requests, scanner.Err()
}
