// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/model"
)

// several is a model with three repositories, in addition to base's model.
const several = `quantizations:
- {name: q8, bytesPerParam: 1, scope: all, peak: fp16}
- {name: q4, bytesPerParam: 0.5, scope: all, peak: fp16}
models:
- name: nn
  aliases: [en]
  hubId: Org/NN
  shape: {layers: 2, hidden: 8, intermediate: 16, heads: 2, kvHeads: 1, headDim: 4, vocab: 32}
  context: 128
  artifacts:
  - {engine: e, repo: Org/NN, revision: main, quantization: f16, native: true, weightBytes: 300, idleBytes: 20}
  - {engine: e, repo: Else/NN-Q8, revision: main, quantization: q8, weightBytes: 150, weightBasis: estimated}
  - {engine: e, repo: Other/nn-q4, revision: main, quantization: q4, weightBytes: 75, flags: [{name: a, why: because}]}
`

// A repository's name means the model with that repository's weights, and consent to their precision.
func TestResolveModelByRepository(t *testing.T) {
	c, err := load(files(map[string]string{"models.yaml": several}))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := c.ResolveModel("nn")
	if err != nil {
		t.Fatal(err)
	}
	view := func(hubID, name string, i int) model.Model {
		m := whole.Clone()
		m.HubID, m.Name, m.Aliases, m.Artifacts = hubID, name, nil, m.Artifacts[i:i+1]
		m.Artifacts[0].Native = true
		return m
	}
	for _, tc := range []struct {
		reason, name string
		want         model.Model
	}{
		{"the hub id stands for all forms, though one of them is its own", "org/nn", whole},
		{"an alias", "EN", whole},
		{"a repository", "Else/NN-Q8", view("Else/NN-Q8", "nn-q8", 1)},
		{"a repository in another case", "else/nn-q8", view("Else/NN-Q8", "nn-q8", 1)},
		{"a repository's basename", "nn-Q4", view("Other/nn-q4", "nn-q4", 2)},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, err := c.ResolveModel(tc.name)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("model (-want +got):\n%s", diff)
			}
		})
	}
	got, _ := c.Model("nn-q4")
	got.Artifacts[0].Flags[0].Name = "changed"
	if again, _ := c.Model("nn-q4"); again.Artifacts[0].Flags[0].Name != "a" {
		t.Error("changing a result changed the catalogue")
	}
}

// A basename of two repositories, or a model's name, does not mean a repository.
func TestBaseNamesOfRepositories(t *testing.T) {
	c, err := load(files(map[string]string{"models.yaml": several + `- name: mm
  hubId: Org/MM
  shape: {layers: 2, hidden: 8, intermediate: 16, heads: 2, kvHeads: 1, headDim: 4, vocab: 32}
  context: 128
  artifacts:
  - {engine: e, repo: Mirror/m, revision: main, quantization: f16, weightBytes: 300}
  - {engine: e, repo: Mirror/nn-q8, revision: main, quantization: q8, weightBytes: 150}
`}))
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := c.Model("m"); !ok || m.HubID != "Org/M" {
		t.Errorf("Model(m) = %q, %v, want Org/M", m.HubID, ok)
	}
	if m, ok := c.Model("mirror/M"); !ok || m.HubID != "Mirror/m" {
		t.Errorf("Model(mirror/M) = %q, %v, want Mirror/m", m.HubID, ok)
	}
	if m, ok := c.Model("nn-q8"); ok {
		t.Errorf("Model(nn-q8) = %q, though two repositories have that basename", m.HubID)
	}
	if m, ok := c.Model("Mirror/nn-q8"); !ok || m.HubID != "Mirror/nn-q8" {
		t.Errorf("Model(Mirror/nn-q8) = %q, %v, want Mirror/nn-q8", m.HubID, ok)
	}
}

func TestRepositoriesHaveOneModel(t *testing.T) {
	for _, tc := range []struct{ reason, text, want string }{
		{
			"a repository of another model", modelWith("repo: Org/N,", "repo: ORG/M-gguf,"),
			`catalogue file "models.yaml": model "nn": artifacts[0].repo: repository "ORG/M-gguf" already belongs to "m"`,
		},
		{
			"the hub id of another model", modelWith("repo: Org/N,", "repo: org/m,"),
			`catalogue file "models.yaml": model "nn": artifacts[0].repo: repository "org/m" already belongs to "m"`,
		},
		{
			"a sibling of another model", modelWith("files: [{path: n.gguf, bytes: 100}]", "siblings: [org/M-gguf], weightBytes: 100"),
			`catalogue file "models.yaml": model "nn": artifacts[0].siblings[0]: repository "org/M-gguf" already belongs to "m"`,
		},
		{
			"a flag that the engine does not have",
			modelWith("quantization: f16,", "quantization: f16, flags: [{name: cc, why: because}],"),
			`catalogue file "models.yaml": model "nn": artifacts[0].flags[0].name: "cc" is not a flag of engine e: did you mean c?`,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := load(files(map[string]string{"models.yaml": tc.text}))
			if err == nil {
				t.Fatal("it was accepted")
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}
