// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"flag"
	"testing"

	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/internal/golden"
	"github.com/modelberth/modelberth/test/localcloud/sku"
	"github.com/modelberth/modelberth/test/script"
)

var update = flag.Bool("update", false, "write the golden files")

func TestNodeOf(t *testing.T) {
	kind := sku.SKU{Name: "A", VCPUs: 24, MemoryGiB: 220, DiskGiB: 64, GPUs: 2, Resource: "nvidia.com/gpu"}
	whole := cloud.Machine{
		Request: cloud.Request{Name: "claim-1", SKU: "A", Taints: []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}}},
		ID:      "m-000001", ProviderID: "local://m-000001", GPUs: 2, GPUResource: "nvidia.com/gpu",
	}
	broken := whole
	broken.Fate = &script.Rule{Outcome: script.NoGPUs, GPUs: 1}
	for name, m := range map[string]cloud.Machine{"node.yaml": whole, "node-one-gpu.yaml": broken} {
		t.Run(name, func(t *testing.T) {
			data, err := yaml.Marshal(nodeOf(m, kind, map[string]string{"topology.kubernetes.io/zone": "r-1"}))
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, name, string(data), *update)
		})
	}
}
