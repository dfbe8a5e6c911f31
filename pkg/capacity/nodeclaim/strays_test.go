// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaim_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
)

// claimsOfAll stores claims of all possible creators, by name: ours for Karpenter and for gpu-provisioner, KAITO's,
// and others.
func claimsOfAll(t *testing.T) client.WithWatch {
	t.Helper()
	c := newClient(t)
	for name, labels := range map[string]map[string]string{
		"ours": {
			v1beta1.LabelManagedBy: v1beta1.ManagedBy, v1beta1.LabelWorkspaceUID: "uid-1",
			v1beta1.LabelMachineWorkspaceName: "chat", v1beta1.LabelMachineWorkspaceNamespace: "team-a",
		},
		"ours-as-agent-pool": {
			v1beta1.LabelManagedBy: v1beta1.ManagedBy, v1beta1.LabelWorkspaceUID: "uid-2",
			v1beta1.LabelMachineWorkspaceName: "pool", v1beta1.LabelMachineWorkspaceNamespace: "team-a",
			v1beta1.LabelWorkspace: "pool", v1beta1.LabelWorkspaceNamespace: "team-a",
		},
		"ours-without-managed-by": {
			v1beta1.LabelWorkspaceUID: "uid-3", v1beta1.LabelWorkspace: "pool", v1beta1.LabelWorkspaceNamespace: "team-a",
		},
		"ours-without-uid": {
			v1beta1.LabelManagedBy: v1beta1.ManagedBy, v1beta1.LabelWorkspace: "pool", v1beta1.LabelWorkspaceNamespace: "team-a",
		},
		"kaito":                  {v1beta1.LabelWorkspace: "old", v1beta1.LabelWorkspaceNamespace: "team-b"},
		"kaito-leaving":          {v1beta1.LabelWorkspace: "old", v1beta1.LabelWorkspaceNamespace: "team-b"},
		"kaito-of-no-namespace":  {v1beta1.LabelWorkspace: "old"},
		"somebodys-node-pool":    {karpv1.NodePoolLabelKey: "general"},
		"somebodys-without-pool": nil,
	} {
		claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Finalizers: []string{"karpenter.sh/termination"}}}
		if err := c.Create(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		if name != "kaito-leaving" {
			continue
		}
		if err := c.Delete(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func machinesOf(costs []capacity.MachineCost) []string {
	var names []string
	for _, bill := range costs {
		names = append(names, bill.Owner.Namespace+"/"+bill.Owner.Name+" "+bill.Machine)
	}
	return names
}

// TestMachineCostsAreOurs: claims of others neither count towards ceilings nor get swept.
func TestMachineCostsAreOurs(t *testing.T) {
	c := claimsOfAll(t)
	p := nodeclaim.New(c, c, class)
	for source, list := range map[string]func() ([]capacity.MachineCost, error){
		"cached": func() ([]capacity.MachineCost, error) { return p.MachineCosts(t.Context()) },
		"live":   func() ([]capacity.MachineCost, error) { return p.LiveMachineCosts(t.Context()) },
	} {
		costs, err := list()
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"team-a/chat ours", "team-a/pool ours-as-agent-pool", "/ ours-without-uid"}
		if diff := cmp.Diff(want, machinesOf(costs)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", source, diff)
		}
	}
}

// TestStraysAreKAITOs: our claims with KAITO's labels are not KAITO's.
func TestStraysAreKAITOs(t *testing.T) {
	c := claimsOfAll(t)
	strays := nodeclaim.KAITO{Provisioner: nodeclaim.New(c, c, class)}
	found, err := strays.Strays(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"team-b/old kaito"}, machinesOf(found)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for range 2 { // it may be deleted already
		if err := strays.Delete(t.Context(), "kaito-of-no-namespace"); err != nil {
			t.Errorf("deleting: %v", err)
		}
	}
	claim := &karpv1.NodeClaim{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "kaito-of-no-namespace"}, claim); err != nil || claim.DeletionTimestamp.IsZero() {
		t.Errorf("it was not deleted: %v", err)
	}
}

// TestBillBeginsWithTheLaunch: the cloud charges from the launch on.
func TestBillBeginsWithTheLaunch(t *testing.T) {
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}}
	if got := nodeclaim.MachineCostOf(claim); got.Launched || !got.LaunchedAt.IsZero() {
		t.Errorf("before the launch: %+v", got)
	}
	claim.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
	want := claim.StatusConditions().Get(karpv1.ConditionTypeLaunched).LastTransitionTime.Time
	if got := nodeclaim.MachineCostOf(claim); !got.Launched || !got.LaunchedAt.Equal(want) || want.IsZero() {
		t.Errorf("after it: %+v, want %s", got, want)
	}
}
