// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sku

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestAddFile(t *testing.T) {
	c := Catalogue{}
	err := c.addFile([]byte(`
cloud: somewhere
region: north
currency: USD
skus:
- {name: small, gpu: T4, gpus: 1, resource: nvidia.com/gpu, vcpus: 4, memoryGiB: 28, localDiskGiB: 176, spot: true, prices: {north: 0.5, south: 9}}
- {name: elsewhere, gpu: Unheard, gpus: 8, resource: amd.com/gpu, vcpus: 96, memoryGiB: 900, zones: [north-x], prices: {south: 9}}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []SKU{
		{
			Name: "elsewhere", Region: "north", Zones: []string{"north-x"}, VCPUs: 96, MemoryGiB: 900, DiskGiB: 128,
			GPUs: 8, Resource: "amd.com/gpu", Prices: map[string]float64{"on-demand": 999},
		},
		{
			Name: "small", Region: "north", Zones: []string{"north-1", "north-2", "north-3"}, VCPUs: 4, MemoryGiB: 28, DiskGiB: 176,
			GPUs: 1, Resource: "nvidia.com/gpu", Product: "Tesla-T4", MemoryMiB: 15360, Prices: map[string]float64{"on-demand": 0.5, "spot": 0.2},
		},
	}
	if diff := cmp.Diff(want, c.Sorted(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("catalogue (-want +got):\n%s", diff)
	}
}

func TestAddFileRefuses(t *testing.T) {
	const good = "{name: a, gpu: T4, gpus: 1, resource: nvidia.com/gpu, vcpus: 4, memoryGiB: 28, prices: {r: 1}}"
	for _, test := range []struct{ reason, text, wantErr string }{
		{"no region, no price and no zone", "skus: [" + good + "]", "region is empty"},
		{"a machine without GPUs sells nothing here", "region: r\nskus: [" + strings.Replace(good, "gpus: 1", "gpus: 0", 1) + "]", `skus[0] "a": gpus is 0`},
		{"a machine without processors", "region: r\nskus: [" + strings.Replace(good, "vcpus: 4", "vcpus: -1", 1) + "]", "vcpus is -1"},
		{"a machine without memory", "region: r\nskus: [" + strings.Replace(good, "memoryGiB: 28, ", "", 1) + "]", "memoryGiB is 0"},
		{"a resource that no scheduler counts", "region: r\nskus: [" + strings.Replace(good, "nvidia.com/gpu", "gpu", 1) + "]", `resource is "gpu"`},
		{"a nameless machine", "region: r\nskus: [" + strings.Replace(good, "name: a, ", "", 1) + "]", "name is empty"},
		{"a number that is none", "region: r\nskus: [" + strings.Replace(good, "vcpus: 4", "vcpus: four", 1) + "]", "decoding"},
		{"one name twice", "region: r\nskus: [" + good + ", " + good + "]", `skus[1] "a" is listed twice`},
	} {
		t.Run(test.reason, func(t *testing.T) {
			err := Catalogue{}.addFile([]byte(test.text))
			if err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("addFile says %v, want something with %q", err, test.wantErr)
			}
		})
	}
}

// TestProductCatalogue holds the product's own files against this cloud's needs.
func TestProductCatalogue(t *testing.T) {
	catalogue, err := Load("../../../presets/skus")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range catalogue.Sorted() {
		if s.Resource == "nvidia.com/gpu" && s.Product == "" {
			t.Errorf("%s: its GPU is not in products.yaml, so its nodes would lack the labels of GPU feature discovery", s.Name)
		}
	}
	if _, sold := catalogue["Standard_NC24ads_A100_v4"]; !sold {
		t.Error("Standard_NC24ads_A100_v4 is not for sale, which the lifecycle test and the examples buy")
	}
}

func TestLoadOfNothing(t *testing.T) {
	if _, err := Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "--skus") {
		t.Errorf("an empty directory gives %v, want an error that names --skus", err)
	}
}

func TestOffers(t *testing.T) {
	s := SKU{Zones: []string{"z1"}, Prices: map[string]float64{OnDemand: 1}}
	for _, test := range []struct {
		reason, zone, capacityType string
		want                       bool
	}{
		{"sold so", "z1", OnDemand, true},
		{"not there", "z2", OnDemand, false},
		{"not in this way", "z1", Spot, false},
	} {
		t.Run(test.reason, func(t *testing.T) {
			if got := s.Offers(test.zone, test.capacityType); got != test.want {
				t.Errorf("Offers(%q, %q) = %v, want %v", test.zone, test.capacityType, got, test.want)
			}
		})
	}
}
