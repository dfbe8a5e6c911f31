// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/presets"
)

// The prices are those of the cluster's region.
func TestRegionIsReadFromNodes(t *testing.T) {
	known, err := catalog.Load(presets.FS())
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		reason string
		set    string
		clouds []string
		nodes  []string
		want   pricing
	}{
		{"the administrator says", "northeurope", nil, []string{"westeurope"}, pricing{region: "northeurope"}},
		{"all nodes say the same, some say nothing", "", []string{"azure"}, []string{"westeurope", "", "westeurope"}, pricing{region: "westeurope"}},
		{"nobody says", "", nil, []string{""}, pricing{unknown: "no node has the label topology.kubernetes.io/region"}},
		{"there is no node", "", nil, nil, pricing{unknown: "no node has the label topology.kubernetes.io/region"}},
		{"the nodes are in two regions", "", nil, []string{"westus", "eastus"}, pricing{unknown: "its nodes are in eastus and westus"}},
		{
			"a region of another cloud than machines are bought from", "",
			[]string{"aws"},
			[]string{"westeurope"},
			pricing{unknown: "its nodes are in westeurope, but the catalogue has no prices for that region"},
		},
		{"a cellar", "", nil, []string{"dc-1"}, pricing{unknown: "its nodes are in dc-1, but the catalogue has no prices for that region"}},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			var nodes []client.Object
			for i, region := range tt.nodes {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: string(rune('a' + i)), Labels: map[string]string{}}}
				if region != "" {
					node.Labels[corev1.LabelTopologyRegion] = region
				}
				nodes = append(nodes, node)
			}
			live := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(nodes...).Build()
			got, err := pricingFor(t.Context(), live, options.Controller{Region: tt.set, Clouds: tt.clouds}, known)
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}
