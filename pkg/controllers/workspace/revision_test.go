// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/planner"
)

// TestRevisionsAreSmall has what was turned down counted and not pinned: the cache of every controller holds the
// revisions of all Workspaces.
func TestRevisionsAreSmall(t *testing.T) {
	kube := server(t, workspaceObject())
	s, made := newScope(workspaceObject()), accepted(1)
	made.Plan.Rejected = []planner.Verdict{{InstanceType: "small"}, {InstanceType: "dear"}}
	created, err := New(Config{Client: kube, Live: kube}).createRevision(t.Context(), s, inputs{}, made, firstRevision)
	if err != nil {
		t.Fatal(err)
	}
	object := &appsv1.ControllerRevision{}
	if err := kube.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: created.Name}, object); err != nil {
		t.Fatal(err)
	}
	pinned, err := s.pins.decode(object)
	if err != nil {
		t.Fatal(err)
	}
	for what, plan := range map[string]planner.Plan{"pinned": pinned.Plan, "returned": created.Plan} {
		if len(plan.Rejected) != 0 || plan.TurnedDown != 2 {
			t.Errorf("the plan that is %s lists %d options and counts %d, want 2 that are counted", what, len(plan.Rejected), plan.TurnedDown)
		}
	}
}
