// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package kaito_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/kaito"
)

// others has the costs of a back end.
type others struct{ capacity.CostSource }

func (others) MachineCosts(context.Context) ([]capacity.MachineCost, error) {
	return []capacity.MachineCost{{Machine: "ours", HourlyPrice: 1}}, nil
}

func (o others) LiveMachineCosts(ctx context.Context) ([]capacity.MachineCost, error) {
	return o.MachineCosts(ctx)
}

// held has KAITO's NodeClaims by the name of their Workspace.
type held map[string][]metav1.PartialObjectMetadata

func (h held) NodeClaims(_ context.Context, ws types.NamespacedName) ([]metav1.PartialObjectMetadata, error) {
	return h[ws.Name], nil
}

func claim(name string, labels ...string) metav1.PartialObjectMetadata {
	out := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), Labels: map[string]string{}}}
	for pair := range slices.Chunk(labels, 2) {
		out.Labels[pair[0]] = pair[1]
	}
	return out
}

// indexes collects the functions of indexes for a fake client.
type indexes struct{ builder *fake.ClientBuilder }

func (i indexes) IndexField(_ context.Context, object client.Object, field string, value client.IndexerFunc) error {
	i.builder.WithIndex(object, field, value)
	return nil
}

// TestCosts prices KAITO's machines by their own labels from the takeover on, until they are gone.
func TestCosts(t *testing.T) {
	adopted := func(name, uid string, generation int64) *v1beta1.Workspace {
		return &v1beta1.Workspace{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: name, UID: types.UID(name), Generation: generation,
				Annotations: map[string]string{v1beta1.AnnotationAdopted: `{"uid":"` + uid + `","generation":1,"pods":1}`},
			},
			Resource: v1beta1.ResourceSpec{InstanceType: "large"}, Status: v1beta1.WorkspaceStatus{TargetNodeCount: 1},
		}
	}
	unadopted := adopted("waiting", "waiting", 1)
	unadopted.Annotations = nil
	withoutType := adopted("edited", "edited", 2)
	withoutType.Resource.InstanceType = ""
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		adopted("pool", "pool", 1), withoutType, adopted("copied", "other", 1), adopted("released", "released", 1), unadopted,
	)
	if err := kaito.IndexAdopted(t.Context(), indexes{builder}); err != nil {
		t.Fatal(err)
	}
	const instance, capacityType = "node.kubernetes.io/instance-type", "karpenter.sh/capacity-type"
	leaving := claim("c5", instance, "small")
	leaving.DeletionTimestamp = new(metav1.Now())
	costs := &kaito.Costs{
		CostSource: others{}, Workspaces: builder.Build(),
		Machines: held{
			"pool":    {claim("c1", instance, "small", capacityType, "spot"), claim("c2", instance, "large"), claim("c3")},
			"edited":  {claim("c4", instance, "large"), leaving, claim("c6"), claim("c7", instance, "strange")},
			"copied":  {claim("c8", instance, "large")},
			"waiting": {claim("c9", instance, "large")},
		},
		Price: func(instanceType string, paid v1beta1.CapacityType) float64 {
			price, isKnown := map[string]float64{"small": 2, "large": 4}[instanceType]
			switch {
			case !isKnown:
				return -1
			case paid == v1beta1.CapacitySpot:
				return price / 4
			default:
				return price
			}
		},
	}
	cost := func(workspace, name, instanceType string, price float64, change ...func(*capacity.MachineCost)) capacity.MachineCost {
		out := capacity.MachineCost{
			Owner:   capacity.Owner{Namespace: "ns", Name: workspace, UID: types.UID(workspace)},
			Machine: "NodeClaim " + name, UID: types.UID("uid-of-" + name), InstanceType: instanceType, HourlyPrice: price,
			CapacityType: v1beta1.CapacityOnDemand, Launched: true,
		}
		for _, each := range change {
			each(&out)
		}
		return out
	}
	notLaunched := func(c *capacity.MachineCost) { c.Launched = false }
	want := []capacity.MachineCost{
		{Machine: "ours", HourlyPrice: 1},
		cost("edited", "c4", "large", 4),
		cost("edited", "c5", "small", 2, func(c *capacity.MachineCost) { c.Leaving = true }),
		cost("edited", "c6", "", -1, notLaunched),
		cost("edited", "c7", "strange", -1),
		cost("pool", "c1", "small", 0.5, func(c *capacity.MachineCost) { c.CapacityType = v1beta1.CapacitySpot }),
		cost("pool", "c2", "large", 4),
		cost("pool", "c3", "large", 4, notLaunched),
	}
	for _, read := range []func(context.Context) ([]capacity.MachineCost, error){costs.MachineCosts, costs.LiveMachineCosts} {
		got, err := read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("costs (-want +got):\n%s", diff)
		}
	}
}
