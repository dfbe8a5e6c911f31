// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
)

// kaitos are machines of KAITO's controller. It counts their releases; one machine always remains.
type kaitos struct{ released int }

func (*kaitos) Of(context.Context, types.NamespacedName) ([]string, error) { return nil, nil }

func (k *kaitos) Release(context.Context, types.NamespacedName) ([]string, error) {
	k.released++
	return []string{"NodePool team-a-chat"}, nil
}

// TestLeftoversInUseStay: KAITO's machines stay while a pod that replaces KAITO's pods uses one of them.
func TestLeftoversInUseStay(t *testing.T) {
	ofPool := map[string]string{v1beta1.LabelMachineWorkspaceName: "chat", v1beta1.LabelMachineWorkspaceNamespace: "team-a"}
	ofAgentPool := map[string]string{v1beta1.LabelWorkspace: "chat", v1beta1.LabelWorkspaceNamespace: "team-a"}
	ours := map[string]string{
		v1beta1.LabelMachineWorkspaceName: "chat", v1beta1.LabelMachineWorkspaceNamespace: "team-a", v1beta1.LabelWorkspaceUID: "uid-1",
	}
	onNode := func(s *scope.Scope) { s.Revision.Plan.NodeNames = []string{"node-1"} }
	podOnNode := func(s *scope.Scope) { s.Pods[0].Spec.NodeName = "node-1" }
	for _, test := range []struct {
		reason string
		labels map[string]string
		use    func(*scope.Scope)
		goes   bool
	}{
		{"the plan names a node of KAITO's NodePool", ofPool, onNode, false},
		{"the plan names a node of KAITO's agent pool", ofAgentPool, onNode, false},
		{"a pod runs on a node of KAITO's NodePool", ofPool, podOnNode, false},
		{"a pod runs on a machine of ours", ours, podOnNode, true},
		{"the plan names a node of the user's own", map[string]string{"apps": "chat"}, onNode, true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			machines := &kaitos{}
			r := New(Config{KAITO: machines, Clock: testclock.NewFakePassiveClock(now.Time)})
			s := scope.New(workspaceObject())
			s.Workspace.Annotations = map[string]string{v1beta1.AnnotationAdopted: `{"uid":"uid-1","generation":2,"spec":"former"}`}
			s.Revision, s.StatefulSet, s.Pods = accepted(1), readySet(), []corev1.Pod{podReady()}
			s.Nodes = []corev1.Node{*someNode("node-1", corev1.ConditionTrue, test.labels)}
			test.use(s)
			if err := r.ensureNoLeftovers(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if (machines.released > 0) != test.goes {
				t.Errorf("machines were released %d times, want it: %v", machines.released, test.goes)
			}
		})
	}
}

// TestMachinesOfAnAbortedEditGo: the machines of an edit are released once the edit or the consent is reverted.
// Machines with pods of ours stay.
func TestMachinesOfAnAbortedEditGo(t *testing.T) {
	for _, test := range []struct {
		reason, consent string
		hasSet          bool
		goes            bool
	}{
		{"the edit was reverted", `{"uid":"uid-1","generation":3}`, false, true},
		{"the consent is gone", "", false, true},
		{"the edit goes on", `{"uid":"uid-1","generation":2,"spec":"former"}`, false, false},
		{"the consent is gone, and pods of ours run", "", true, false},
	} {
		t.Run(test.reason, func(t *testing.T) {
			released := 0
			stored := workspaceObject()
			stored.Annotations = map[string]string{v1beta1.AnnotationAdopted: test.consent}
			kube := server(t, stored)
			ws := &v1beta1.Workspace{}
			if err := kube.Get(t.Context(), client.ObjectKeyFromObject(stored), ws); err != nil {
				t.Fatal(err)
			}
			r := New(Config{
				Client: kube, Live: kube, Provisioner: live{released: &released}, KAITO: &kaitos{},
				Clock: testclock.NewFakePassiveClock(now.Time),
			})
			s := scope.New(ws)
			s.KAITO.Set, s.Machines = readySet(), []capacity.Machine{machine()}
			if test.hasSet {
				s.Workers = readySet()
			}
			err := r.ensureLeftAlone(t.Context(), s)
			if isKept := err != nil; isKept != s.KAITO.IsKept() {
				t.Fatalf("error %v, kept: %v", err, s.KAITO.IsKept())
			}
			if (released > 0) != test.goes {
				t.Errorf("machines were released %d times, want it: %v (error %v)", released, test.goes, err)
			}
		})
	}
}
