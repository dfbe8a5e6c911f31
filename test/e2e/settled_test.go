// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/privileges"
)

// auditLog returns the controller's requests so far, in order.
func auditLog() ([]privileges.Request, error) {
	requests, err := privileges.Read(auditPath(), "system:serviceaccount:"+systemNamespace+":"+release)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("the local cloud keeps no audit log")
	}
	return requests, err
}

func auditPath() string { return filepath.Join(local.state, "logs", "audit.log") }

// expectSettled restarts the controller and counts what it writes while everything is as it should be. The last write
// about a Workspace has the figures of its engine, half a minute after its first answer.
func expectSettled(t *testing.T, workspaces ...*v1beta1.Workspace) {
	for _, ws := range workspaces {
		waitFor(t, "the figures of the engine of "+ws.Name, time.Minute, func(ctx context.Context) (bool, error) {
			now := &v1beta1.Workspace{}
			err := local.client.Get(ctx, keyOf(ws), now)
			return err == nil && now.Status.Engine != nil, err
		})
	}
	waitQuiet(t)
	leader := waitLeader(t)
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
		if r.IsWrite() {
			t.Errorf("a restart on settled Workspaces wrote: %s %s/%s", r.Privilege(), r.ObjectRef.Namespace, r.ObjectRef.Name)
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
			if r.IsWrite() {
				writes++
			}
		}
		if writes != last {
			last, since = writes, time.Now()
		}
		return time.Since(since) > quiet, nil
	})
}
