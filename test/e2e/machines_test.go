// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// TestDeletionHalfway deletes a Workspace as soon as a machine has been asked for.
func TestDeletionHalfway(t *testing.T) {
	ns := namespace(t)
	kubectl(t, "apply", "--namespace="+ns, "--filename="+example("demo.yaml"))
	ws := workspace(t, ns, "demo")
	waitFor(t, "a machine to be asked for", seenTimeout, func(ctx context.Context) (bool, error) {
		claims, err := claimsOf(ctx, ws.UID)
		return len(claims) > 0, err
	})
	start := time.Now()
	kubectl(t, "delete", "workspace", "demo", "--namespace="+ns, "--timeout="+goneTimeout.String())
	elapsed(t, "deletion", start)
	expectGone(t, ws)
	local.ledger.expect(t, ws, 1)
}

// TestRefusal has the cloud refuse a machine, and then think better of it.
func TestRefusal(t *testing.T) {
	ns := namespace(t)
	refuse(t, `{"rules": [{"outcome": "noCapacity"}]}`)
	kubectl(t, "apply", "--namespace="+ns, "--filename="+example("kaito-form.yaml"))
	key := types.NamespacedName{Namespace: ns, Name: "workspace-tiny-chat"}
	var attempts []v1beta1.Attempt
	waitFor(t, "a second attempt", time.Minute, func(ctx context.Context) (bool, error) {
		ws := &v1beta1.Workspace{}
		err := local.client.Get(ctx, key, ws)
		attempts = ws.Status.Attempts
		return len(attempts) > 1, err
	})
	t.Logf("the first of %d attempts: %+v", len(attempts), attempts[0])
	if attempts[0].Reason == "" || attempts[0].Message == "" {
		t.Errorf("status.attempts does not say how the first one ended: %+v", attempts[0])
	}
	refuse(t, `{"rules": []}`)
	ws := waitReady(t, ns, key.Name)
	claims, err := claimsOf(t.Context(), ws.UID)
	if err != nil || len(claims) != 1 {
		t.Errorf("the Workspace holds %v (%v), want one machine", claims, err)
	}
	expectAnswers(t, ws, tinyModel)
}

// refuse tells the local cloud what to answer to whoever asks for machines, until the test ends.
func refuse(t *testing.T, script string) {
	t.Helper()
	path := filepath.Join(local.state, "script.json")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
}
