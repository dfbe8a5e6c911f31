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

// Two machine types that no other test asks for, the cheaper one first: a refusal is remembered.
const (
	refusedType = "Standard_NC8as_T4_v3"
	nextType    = "Standard_NC16as_T4_v3"
)

// eitherType is a Workspace that may run on both.
const eitherType = `apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata:
  name: either
resource:
  placement:
    instanceTypes: [` + refusedType + `, ` + nextType + `]
inference:
  preset:
    name: tiny-chat
`

// TestRefusal has the cloud refuse the best machine type, so that the next best serves.
func TestRefusal(t *testing.T) {
	ns := namespace(t)
	refuse(t, `{"rules": [{"sku": "`+refusedType+`", "outcome": "noCapacity"}]}`)
	apply(t, ns, eitherType)
	ws := waitReady(t, ns, "either")
	attempts := ws.Status.Attempts
	if len(attempts) != 2 || attempts[0].InstanceType != refusedType || attempts[1].InstanceType != nextType {
		t.Fatalf("attempts %+v, want one for %s and one for %s", attempts, refusedType, nextType)
	}
	if first := attempts[0]; first.Reason != v1beta1.ReasonNoCapacity || first.Message == "" || first.EndTime == nil {
		t.Errorf("status.attempts does not say how the first one ended: %+v", first)
	} else if took := attempts[1].StartTime.Sub(first.EndTime.Time); took > 10*time.Second {
		t.Errorf("the next attempt began %s after the refusal, want 10 s or less", took)
	}
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
