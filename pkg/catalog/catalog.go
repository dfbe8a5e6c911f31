// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"maps"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/sku"
)

// Catalog holds all facts. It never changes after Load, so goroutines may share it. Methods return copies that callers
// may change.
type Catalog struct {
	// The maps are keyed by every lower-case name of an entry.
	gpus    map[string]sku.GPU
	skus    map[string]sku.SKU
	models  map[string]model.Model
	engines map[string]Engine
	regions map[string]string

	quantizations map[string]model.Quantization
	objectives    map[v1beta1.OptimizeFor]Objective

	// products is keyed by the GPUs' product names in node labels, in the form of productKey.
	products map[string]sku.GPU

	// repos is keyed by every lower-case name of a repository.
	repos map[string]repoOf

	sortedSKUs   []sku.SKU
	sortedModels []model.Model

	sortedQuantizations []model.Quantization

	measurements []measured
}

// Models returns all models by name.
func (c *Catalog) Models() []model.Model {
	out := make([]model.Model, len(c.sortedModels))
	for i, m := range c.sortedModels {
		out[i] = m.Clone()
	}
	return out
}

// GPU returns the GPU with the name or alias. It ignores case, and treats spaces as dashes. The name of a class means
// the GPU with the class as an alias, such as the SXM variant.
func (c *Catalog) GPU(name string) (sku.GPU, bool) {
	key := gpuKey(name)
	if g, ok := c.gpus[key]; ok {
		return g.Clone(), true
	}
	// A name with a MIG profile, such as H100-80-3g.40gb, means a slice.
	at := strings.LastIndex(key, "-")
	if at < 0 {
		return sku.GPU{}, false
	}
	whole, ok := c.gpus[key[:at]]
	if !ok {
		return sku.GPU{}, false
	}
	return whole.Slice(key[at+1:])
}

// gpuKey returns the key of a GPU's name.
func gpuKey(name string) string {
	return strings.Join(strings.Fields(strings.ToLower(name)), "-")
}

// SKU returns the machine type with the name, in any case; its Name has the cloud's own spelling.
func (c *Catalog) SKU(name string) (sku.SKU, bool) {
	s, ok := c.skus[strings.ToLower(name)]
	return s.Clone(), ok
}

// ResolveSKU works like SKU. For an unknown name, it returns an *UnknownError with suggestions.
func (c *Catalog) ResolveSKU(name string) (sku.SKU, error) {
	if s, ok := c.SKU(name); ok {
		return s, nil
	}
	names := make([]string, len(c.sortedSKUs))
	for i, s := range c.sortedSKUs {
		names[i] = s.Name
	}
	return sku.SKU{}, &UnknownError{Kind: KindInstanceType, Name: name, Suggestions: closest(name, names)}
}

// SKUs returns all machine types by cloud and name.
func (c *Catalog) SKUs() []sku.SKU {
	out := make([]sku.SKU, len(c.sortedSKUs))
	for i, s := range c.sortedSKUs {
		out[i] = s.Clone()
	}
	return out
}

// Engine returns the engine with the name.
func (c *Catalog) Engine(name string) (Engine, bool) {
	e, ok := c.engines[strings.ToLower(name)]
	return e.Clone(), ok
}

// Engines returns all engines by name.
func (c *Catalog) Engines() []Engine {
	out := make([]Engine, 0, len(c.engines))
	for _, key := range sortedKeys(c.engines) {
		out = append(out, c.engines[key].Clone())
	}
	return out
}

// ReferenceRegion returns the region for a cloud's prices if the administrator set none.
func (c *Catalog) ReferenceRegion(cloud string) string {
	return c.regions[cloud]
}

// SimilarGPUs returns names and classes of GPUs with a similar spelling, the closest first.
func (c *Catalog) SimilarGPUs(name string) []string {
	return closest(name, c.gpuNames())
}

// gpuNames returns the names and classes of all GPUs.
func (c *Catalog) gpuNames() []string {
	names := map[string]bool{}
	for _, g := range c.gpus {
		names[g.Name], names[g.Class] = true, true
	}
	return sortedKeys(names)
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[T any](m map[string]T) []string {
	return slices.Sorted(maps.Keys(m))
}
