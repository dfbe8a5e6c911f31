// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"maps"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/sku"
)

// Catalog is all facts. It never changes after Load, so it may be shared; what its methods return may
// be changed by the caller without harm.
type Catalog struct {
	// The maps are keyed by every lower-case name that stands for an entry.
	gpus    map[string]sku.GPU
	skus    map[string]sku.SKU
	models  map[string]model.Model
	engines map[string]Engine
	regions map[string]string

	sortedSKUs   []sku.SKU
	sortedModels []model.Model
}

// Model returns the model that a preset's name, an alias or a hub id stands for, in any case.
func (c *Catalog) Model(name string) (model.Model, bool) {
	m, ok := c.models[strings.ToLower(name)]
	return m.Clone(), ok
}

// ResolveModel is Model with an *UnknownError that a person can act on.
func (c *Catalog) ResolveModel(name string) (model.Model, error) {
	if m, ok := c.Model(name); ok {
		return m, nil
	}
	return model.Model{}, &UnknownError{Kind: KindPreset, Name: name, Suggestions: c.similarModels(name)}
}

// Models returns all models by name.
func (c *Catalog) Models() []model.Model {
	out := make([]model.Model, len(c.sortedModels))
	for i, m := range c.sortedModels {
		out[i] = m.Clone()
	}
	return out
}

// GPU returns the GPU with the name or alias, in any case. A class is not a name: it may stand for
// several parts.
func (c *Catalog) GPU(name string) (sku.GPU, bool) {
	g, ok := c.gpus[strings.ToLower(name)]
	return g.Clone(), ok
}

// SKU returns the machine type with the name, in any case; its Name has the cloud's own spelling.
func (c *Catalog) SKU(name string) (sku.SKU, bool) {
	s, ok := c.skus[strings.ToLower(name)]
	return s.Clone(), ok
}

// ResolveSKU is SKU with an *UnknownError that a person can act on.
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

// ReferenceRegion is the region whose prices are quoted for a cloud where the administrator set none.
func (c *Catalog) ReferenceRegion(cloud string) string {
	return c.regions[cloud]
}

// SimilarGPUs returns the names and classes of GPUs that are spelled like the given one, the closest
// first.
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

// similarModels suggests models for a name: by hub id where the name looks like one, then by name.
func (c *Catalog) similarModels(name string) []string {
	_, base, isHubID := strings.Cut(name, "/")
	if !isHubID {
		base = name
	}
	var names []string
	for _, m := range c.sortedModels {
		names = append(names, m.Name)
		names = append(names, m.Aliases...)
	}
	return closest(base, names)
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[T any](m map[string]T) []string {
	return slices.Sorted(maps.Keys(m))
}
