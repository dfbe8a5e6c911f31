// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/planner"
)

// kaitoMachines are the machine types of the columns in testdata/kaito-nodes.csv.
func kaitoMachines() []string {
	return []string{
		"Standard_NV36ads_A10_v5", "Standard_NC24ads_A100_v4", "Standard_NC48ads_A100_v4",
		"Standard_NC80adis_H100_v5", "Standard_ND96isr_H100_v5", "Standard_ND96isr_H200_v5",
	}
}

// TestNodesAgainstKAITO: no plan takes more machines than KAITO v0.12.0 requests on the same machine type, and its
// split is legal.
func TestNodesAgainstKAITO(t *testing.T) {
	file, err := os.Open("testdata/kaito-nodes.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	c := realCatalog(t)
	p := planner.New(c, planner.Settings{Clouds: []string{"azure"}, Engines: []string{"vllm"}})
	fewer, same, more, refused := 0, 0, 0, 0
	for _, row := range rows[1:] {
		m, err := c.ResolveModel(row[0])
		if err != nil {
			t.Errorf("%s: %v", row[0], err)
			continue
		}
		for i, machine := range kaitoMachines() {
			kaito, err := strconv.Atoi(row[i+1])
			if err != nil {
				t.Fatal(err)
			}
			plan, err := p.Plan(planner.Request{Model: &m, Constraints: planner.Constraints{InstanceType: machine}})
			if err != nil {
				refused++
				checkRefusal(t, fmt.Sprintf("%s on %s, KAITO %d", row[0], machine, kaito), err)
				continue
			}
			switch {
			case plan.Nodes > kaito && !holds(t, c, m, machine, kaito):
				more++
				t.Logf("%s on %s: %d machines; the fullest stage of KAITO's %d leaves no room", row[0], machine, plan.Nodes, kaito)
			case plan.Nodes > kaito:
				t.Errorf("%s on %s: %d machines, KAITO asks for %d", row[0], machine, plan.Nodes, kaito)
			case plan.Nodes == kaito:
				same++
			default:
				fewer++
			}
			if m.Shape.Heads%plan.TensorParallel != 0 {
				t.Errorf("%s on %s: %d heads over %d GPUs", row[0], machine, m.Shape.Heads, plan.TensorParallel)
			}
			if kv := m.Shape.KVHeads; m.Shape.MLA == nil && kv%plan.TensorParallel != 0 && plan.TensorParallel%kv != 0 {
				t.Errorf("%s on %s: %d KV heads over %d GPUs", row[0], machine, kv, plan.TensorParallel)
			}
		}
	}
	t.Logf("figure: %d plans take as many machines as KAITO, %d take fewer, %d take more, %d are refused", same, fewer, more, refused)
	// Six of the refused plans are for two models with sparse attention on A10s and A100s, which have no kernels for
	// it. KAITO does not count the memory of image encoders and the margin of estimates. Without them, 40 plans take
	// fewer machines.
	if fewer < 33 || more > 1 || refused > 15 {
		t.Error("the comparison with KAITO has become worse")
	}
}

// checkRefusal requires that the error names the layer's size or the GPU's limitation.
func checkRefusal(t *testing.T, what string, err error) {
	t.Helper()
	text := err.Error()
	if !strings.Contains(text, "a layer takes") && !strings.Contains(text, "needs compute capability") &&
		!strings.Contains(text, "runs on compute capability") {
		t.Errorf("%s: refused without a reason that counts: %v", what, err)
		return
	}
	t.Logf("%s: %v", what, err)
}

// holds reports whether machines hold whole layers of a model, the libraries and the engine's smallest batch.
func holds(t *testing.T, c *catalog.Catalog, m model.Model, machine string, nodes int) bool {
	t.Helper()
	s, err := c.ResolveSKU(machine)
	if err != nil {
		t.Fatal(err)
	}
	gpu, _ := c.GPU(s.GPU)
	engine, _ := c.Engine("vllm")
	format, _ := c.Quantization(m.Artifacts[0].Quantization)
	weights := physics.NewModel(m.Shape, physics.Weights{Format: format, Bytes: m.Artifacts[0].LoadedBytes()})
	l := physics.Layout{TP: s.GPUs, PP: nodes, DP: 1, Nodes: nodes, LinkedGPUs: s.LinkedGPUs}
	serving := physics.Serving{MaxModelLen: 1, MaxNumSeqs: 1, MaxBatchedTokens: 2048, Utilization: 0.95, Eager: true}
	return physics.Memory(weights, &gpu, l, &serving, &engine).KVCache >= 0
}
