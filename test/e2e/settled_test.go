// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// request is one line of the API server's audit log, which holds the controller's requests only.
type request struct {
	Verb      string
	Stage     string
	StageTime time.Time `json:"stageTimestamp"`
	User      struct{ Username string }
	ObjectRef struct {
		APIGroup, Resource, Subresource, Namespace, Name string
	}
	ResponseStatus struct{ Code int }
}

// what names the request's resource and verb as a role does.
func (r request) what() string {
	resource := r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		resource += "/" + r.ObjectRef.Subresource
	}
	return strings.Join([]string{r.ObjectRef.APIGroup, resource, r.Verb}, " ")
}

// isWrite leaves out the election of a leader, which writes a Lease all the time, and Events, which
// tell of changes and are none.
func (r request) isWrite() bool {
	return !slices.Contains([]string{"get", "list", "watch"}, r.Verb) &&
		!slices.Contains([]string{"leases", "events"}, r.ObjectRef.Resource)
}

// auditLog returns the controller's requests so far, in order.
func auditLog() ([]request, error) {
	file, err := os.Open(filepath.Join(local.state, "logs", "audit.log"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("the local cloud keeps no audit log")
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var requests []request
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var r request
		if err := json.Unmarshal(scanner.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("line %d of the audit log: %w", len(requests)+1, err)
		}
		user := "system:serviceaccount:" + systemNamespace + ":" + release
		// A watch is complete only when it ends.
		if r.User.Username == user && (r.Stage == "ResponseComplete") != (r.Verb == "watch") {
			requests = append(requests, r)
		}
	}
	return requests, scanner.Err()
}

// expectSettled restarts the controller and counts what it writes while everything is as it should be.
func expectSettled(t *testing.T) {
	waitQuiet(t)
	leader, err := leaderPod(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before, err := auditLog()
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, "rollout", "restart", "deployment/"+release, "--namespace="+systemNamespace)
	kubectl(t, "rollout", "status", "deployment/"+release, "--namespace="+systemNamespace, "--timeout=2m")
	waitFor(t, "another leader", time.Minute, func(ctx context.Context) (bool, error) {
		next, err := leaderPod(ctx)
		return err == nil && next.UID != leader.UID, err
	})
	// The new leader looks at every Workspace once: it has, when its log falls silent.
	waitQuiet(t)
	after, err := auditLog()
	if err != nil {
		t.Fatal(err)
	}
	requests := after[len(before):]
	watches := 0
	for _, r := range requests {
		if r.isWrite() {
			t.Errorf("a restart on settled Workspaces wrote: %s %s/%s", r.what(), r.ObjectRef.Namespace, r.ObjectRef.Name)
		}
		if r.Verb == "list" || r.Verb == "watch" {
			watches++
		}
	}
	if watches == 0 {
		t.Error("the audit log does not show the new replicas reading anything: does it log their requests?")
	}
}

// waitQuiet waits until the controller has not written anything for a while.
func waitQuiet(t *testing.T) {
	t.Helper()
	const quiet = 5 * time.Second
	last, since := -1, time.Now()
	waitFor(t, "the controller to fall silent", time.Minute, func(context.Context) (bool, error) {
		requests, err := auditLog()
		if err != nil {
			return false, err
		}
		writes := 0
		for _, r := range requests {
			if r.isWrite() {
				writes++
			}
		}
		if writes != last {
			last, since = writes, time.Now()
		}
		return time.Since(since) > quiet, nil
	})
}
