// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/sku"
)

// longestReason leaves room in a verdict, which the API bounds to 256 characters.
const longestReason = 200

// check collects the first problem of an entry.
type check struct{ err error }

// fail records a problem unless there is one already.
func (c *check) fail(field string, value any, must string) {
	if c.err == nil {
		c.err = fmt.Errorf("%s: %v %s", field, value, must)
	}
}

// text records a text that does not have the form.
func (c *check) text(field, value string, form func(string) bool, must string) {
	if !form(value) {
		c.fail(field, fmt.Sprintf("%q", value), must)
	}
}

// within records a number outside its bounds.
func (c *check) within(field string, value, least, most float64) {
	if math.IsNaN(value) || value < least || value > most {
		c.fail(field, value, fmt.Sprintf("must be from %v to %v", least, most))
	}
}

// positive records a number that is not above 0, or above the bound.
func (c *check) positive(field string, value, most float64) {
	if math.IsNaN(value) || value <= 0 || value > most {
		c.fail(field, value, fmt.Sprintf("must be above 0 and at most %v", most))
	}
}

// validateHeader checks what a file says about itself. Overlays need not state sources.
func validateHeader(doc document, sourced bool) error {
	var c check
	if sourced && doc.Source == "" {
		c.fail("source", `""`, "must say where the facts come from")
	}
	if sourced || doc.Date != "" {
		c.text("date", doc.Date, isDate, "must be a date such as 2026-01-31, in quotes")
	}
	if doc.Currency != "" && doc.Currency != "USD" {
		c.fail("currency", fmt.Sprintf("%q", doc.Currency), "must be USD: convert the prices")
	}
	if doc.Cloud != "" {
		c.text("cloud", doc.Cloud, isLowerName, "must be a lower-case name such as azure")
	}
	if doc.Region != "" {
		c.text("region", doc.Region, isLowerName, "must be a region such as eastus")
		if doc.Cloud == "" {
			c.fail("region", fmt.Sprintf("%q", doc.Region), "needs cloud beside it")
		}
	}
	return c.err
}

// validateGPU checks one GPU.
func validateGPU(g sku.GPU) error {
	var c check
	c.text("name", g.Name, isName, "must be a name such as A100-80-PCIe")
	c.text("class", g.Class, isName, "must be a name such as A100-80")
	for i, alias := range g.Aliases {
		c.text(fmt.Sprintf("aliases[%d]", i), alias, isName, "must be a name such as A100-80")
	}
	c.positive("memoryGiB", g.MemoryGiB, 4096)
	c.positive("bandwidthGBs", g.BandwidthGBs, 100_000)
	if g.ComputeCapability != "" {
		c.text("computeCapability", g.ComputeCapability, isCapability, `must be two numbers such as "8.0"`)
	}
	return c.err
}

// validateSKU checks one machine type.
func validateSKU(s sku.SKU) error {
	var c check
	c.text("name", s.Name, isName, "must be an instance type such as Standard_NC24ads_A100_v4")
	c.text("cloud", s.Cloud, isLowerName, "must be a lower-case name such as azure, in the entry or at the top of the file")
	c.within("gpus", float64(s.GPUs), 0, 64)
	if (s.GPUs > 0) != (s.GPU != "") {
		c.fail("gpu", fmt.Sprintf("%q", s.GPU), fmt.Sprintf("does not go with gpus: %d", s.GPUs))
	}
	if s.GPUs > 0 {
		c.text("resource", s.Resource, isResource, "must be an extended resource such as nvidia.com/gpu")
	}
	c.within("vcpus", float64(s.VCPUs), 1, 4096)
	c.positive("memoryGiB", s.MemoryGiB, 100_000)
	c.within("localDiskGiB", s.LocalDiskGiB, 0, 1_000_000)
	if len(s.Unusable) > longestReason || strings.ContainsAny(s.Unusable, "\r\n") {
		c.fail("unusable", fmt.Sprintf("%.40q…", s.Unusable), fmt.Sprintf("must be one line of at most %d bytes", longestReason))
	}
	for _, region := range sortedKeys(s.Prices) {
		c.text("prices", region, isLowerName, "must be a region such as eastus")
		c.within("prices."+region, s.Prices[region], 0, 100_000)
	}
	return c.err
}

// validateModel checks one model.
func validateModel(m model.Model) error {
	var c check
	c.text("hubId", m.HubID, isRepo, "must be a hub id such as org/Model")
	if want := strings.ToLower(path.Base(m.HubID)); m.Name != want {
		c.fail("name", fmt.Sprintf("%q", m.Name), fmt.Sprintf("must be the lower-case basename of hubId, %q", want))
	}
	for i, alias := range m.Aliases {
		c.text(fmt.Sprintf("aliases[%d]", i), alias, isLowerName, "must be a lower-case name")
	}
	switch {
	case len(m.Artifacts) == 0 && m.Needs == "":
		c.fail("artifacts", "[]", "must have an entry, unless needs names the engine that the model waits for")
	case len(m.Artifacts) > 0 && m.Needs != "":
		c.fail("needs", fmt.Sprintf("%q", m.Needs), "is for models without artifacts")
	case m.Needs != "":
		c.text("needs", m.Needs, isLowerName, "must be an engine's name")
	}
	if len(m.Artifacts) > 0 || m.Context != 0 {
		c.within("context", float64(m.Context), 1, 1<<24)
	}
	if len(m.Artifacts) > 0 || m.Shape != (model.Shape{}) {
		c.shape(m.Shape)
	}
	seen := map[string]bool{}
	for i, a := range m.Artifacts {
		field := fmt.Sprintf("artifacts[%d]", i)
		c.artifact(field, a)
		if key := a.Engine + "/" + a.Quantization; seen[key] {
			c.fail(field+".quantization", fmt.Sprintf("%q", a.Quantization), "is given twice for engine "+a.Engine)
		} else {
			seen[key] = true
		}
	}
	return c.err
}

// shape checks a transformer's shape. The bounds keep all products within 64 bits.
func (c *check) shape(s model.Shape) {
	for _, dimension := range []struct {
		field string
		value int
		most  float64
	}{
		{"layers", s.Layers, 1 << 12},
		{"hidden", s.Hidden, 1 << 18},
		{"intermediate", s.Intermediate, 1 << 20},
		{"heads", s.Heads, 1 << 12},
		{"kvHeads", s.KVHeads, 1 << 12},
		{"headDim", s.HeadDim, 1 << 12},
		{"vocab", s.Vocab, 1 << 24},
	} {
		c.within("shape."+dimension.field, float64(dimension.value), 1, dimension.most)
	}
	if c.err == nil && s.Heads%s.KVHeads != 0 {
		c.fail("shape.kvHeads", s.KVHeads, fmt.Sprintf("does not divide shape.heads: %d", s.Heads))
	}
}

// artifact checks one form of a model's weights.
func (c *check) artifact(field string, a model.Artifact) {
	c.text(field+".engine", a.Engine, isLowerName, "must be an engine's name")
	c.text(field+".repo", a.Repo, isRepo, "must be a repository such as org/Model-GGUF")
	c.text(field+".revision", a.Revision, isRevision, "must be a branch, tag or commit")
	c.text(field+".quantization", a.Quantization, isLowerName, "must be a lower-case name such as f16")
	if len(a.Files) == 0 {
		c.fail(field+".files", "[]", "must name a file")
	}
	paths := map[string]bool{}
	for i, f := range a.Files {
		file := fmt.Sprintf("%s.files[%d]", field, i)
		if !isFilePath(f.Path) {
			c.fail(file+".path", fmt.Sprintf("%q", f.Path), "must be a path within the repository")
		}
		if paths[f.Path] {
			c.fail(file+".path", fmt.Sprintf("%q", f.Path), "is given twice")
		}
		paths[f.Path] = true
		c.within(file+".bytes", float64(f.Bytes), 1, 1<<43)
		if !slices.Contains([]model.BytesBasis{"", model.BytesExact, model.BytesEstimated}, f.BytesBasis) {
			c.fail(file+".bytesBasis", fmt.Sprintf("%q", f.BytesBasis), "must be exact or estimated")
		}
		if f.SHA256 != "" {
			c.text(file+".sha256", f.SHA256, isSHA256, "must be 64 lower-case hexadecimal digits")
		}
	}
}
