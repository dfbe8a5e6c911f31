// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaim_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
)

var update = flag.Bool("update", false, "write the golden files")

// agentPools is the node class of gpu-provisioner's claims. It need not exist.
var agentPools = v1beta1.NodeClassReference{Group: "kaito.sh", Kind: "KaitoNodeClass", Name: "default"}

// TestClaims compares whole claims with golden files.
func TestClaims(t *testing.T) {
	tests := []struct {
		golden  string
		class   v1beta1.NodeClassReference
		request func(*capacity.Request)
	}{
		{"karpenter", class, func(r *capacity.Request) { r.Zones, r.HourlyPrice = []string{"eastus-2", "eastus-1"}, 3.673 }},
		{"gpu-provisioner", agentPools, func(r *capacity.Request) { r.HourlyPrice = 3.673 }},
		{"gpu-provisioner-large-disk", agentPools, func(r *capacity.Request) { r.DiskGiB = 300 }},
	}
	for _, test := range tests {
		t.Run(test.golden, func(t *testing.T) {
			c := newClient(t)
			req := request(1, "Standard_NC24ads_A100_v4")
			req.HourlyPrice = -1
			test.request(&req)
			outcome, err := nodeclaim.New(c, c, test.class).Ensure(t.Context(), req)
			if err != nil || len(outcome.Created) != 1 {
				t.Fatalf("created %v, error %v", outcome.Created, err)
			}
			claim := &karpv1.NodeClaim{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: outcome.Created[0].Name}, claim); err != nil {
				t.Fatal(err)
			}
			claim.ResourceVersion = ""
			got, err := yaml.Marshal(claim)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, filepath.Join("testdata", test.golden+".yaml"), string(got))
		})
	}
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), -update writes it anew:\n%s", file, diff)
	}
}

// TestAgentPoolNames: an agent pool has the name of its claim.
func TestAgentPoolNames(t *testing.T) {
	legal := regexp.MustCompile(`^[a-z][a-z0-9]{0,11}$`)
	seen := map[string]bool{}
	for attempt := range int32(50) {
		names, err := nodeclaim.New(nil, nil, agentPools).Names(owner, attempt, 4)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if !legal.MatchString(name) || seen[name] {
				t.Errorf("name %q is not legal, or comes twice", name)
			}
			seen[name] = true
		}
	}
}

// TestAgentPoolsServe: the claims for gpu-provisioner match the request in the next pass, in any zone.
func TestAgentPoolsServe(t *testing.T) {
	c := newClient(t)
	pools := nodeclaim.New(c, c, agentPools)
	req := request(2, "A")
	req.OneZone = true
	outcome, err := pools.Ensure(t.Context(), req)
	if err != nil || len(outcome.Created) != 2 {
		t.Fatalf("created %v, error %v; want both at once: nobody can choose their zones", outcome.Created, err)
	}
	outcome, err = pools.Ensure(t.Context(), req)
	if err != nil || len(outcome.Created)+len(outcome.Released) > 0 {
		t.Errorf("second time: %+v, error %v; want nothing", outcome, err)
	}
	machines, err := pools.Observe(t.Context(), owner, nil, "nvidia.com/gpu")
	if err != nil || len(machines) != 2 {
		t.Fatalf("machines %v, error %v", machines, err)
	}
	for _, machine := range machines {
		if machine.CapacityType != v1beta1.CapacityOnDemand || machine.InstanceType != "A" {
			t.Errorf("%s is %s %s, want A on demand", machine.Name, machine.InstanceType, machine.CapacityType)
		}
	}
}

// TestKarpenterClaimsStayKarpenters: two controllers must not create machines for one claim.
func TestKarpenterClaimsStayKarpenters(t *testing.T) {
	c := newClient(t)
	if _, err := nodeclaim.New(c, c, class).Ensure(t.Context(), request(1, "A")); err != nil {
		t.Fatal(err)
	}
	claims := &karpv1.NodeClaimList{}
	if err := c.List(t.Context(), claims); err != nil {
		t.Fatal(err)
	}
	for i := range claims.Items {
		for _, key := range []string{v1beta1.LabelWorkspace, "kaito.sh/ragengine"} {
			if _, ok := claims.Items[i].Labels[key]; ok {
				t.Errorf("claim %s has label %s", claims.Items[i].Name, key)
			}
		}
		if pool := claims.Items[i].Labels[karpv1.NodePoolLabelKey]; pool == "kaito" {
			t.Errorf("claim %s is of the pool %s, as those for gpu-provisioner are", claims.Items[i].Name, pool)
		}
		if _, ok := claims.Items[i].Spec.Resources.Requests[corev1.ResourceStorage]; ok {
			t.Errorf("claim %s requests storage, which fits on no machine of Karpenter's", claims.Items[i].Name)
		}
	}
}
