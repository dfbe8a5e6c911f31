// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
)

// takenKind is an Applier to whom all objects of one kind belong to somebody else.
type takenKind string

func (takenKind) Check(context.Context, client.Object, client.Object) error { return nil }

func (k takenKind) State(ctx context.Context, owner, desired client.Object) (apply.State, error) {
	_, err := k.Apply(ctx, owner, desired)
	return apply.Applied, err
}

func (k takenKind) Apply(_ context.Context, _, desired client.Object) (bool, error) {
	if kind := desired.GetObjectKind().GroupVersionKind().Kind; kind == string(k) {
		return false, &apply.TakenError{Kind: kind, Namespace: desired.GetNamespace(), Name: desired.GetName()}
	}
	return true, nil
}

// TestNamesOfOthers says whom an object of somebody else stops: nobody who runs since before there were
// NetworkPolicies goes without an endpoint because of one.
func TestNamesOfOthers(t *testing.T) {
	tests := []struct {
		reason string
		kind   string
		runs   bool
		want   string
	}{
		{"all names are free", "", false, ""},
		{"the Service is somebody else's", "Service", true, v1beta1.ReasonNameTaken},
		{"nothing is bought beside a NetworkPolicy of somebody else", "NetworkPolicy", false, v1beta1.ReasonNameTaken},
		{"what runs goes on beside it", "NetworkPolicy", true, ""},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			r, s := New(Config{Applier: takenKind(test.kind)}), newScope(workspaceObject())
			s.revision = accepted(1)
			if test.runs {
				s.statefulSet = readySet()
			}
			got := ""
			if err := r.ensureNames(t.Context(), s); err != nil {
				got = reasonOf(err)
			}
			if got != test.want || s.named != (test.want == "" && test.runs) {
				t.Errorf("reason %q, Services are there: %v; want reason %q", got, s.named, test.want)
			}
		})
	}
}
