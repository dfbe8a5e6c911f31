// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/sku"
)

// build checks references between entries and indexes them.
func (m *merger) build() (*Catalog, error) {
	c := &Catalog{
		gpus:    map[string]sku.GPU{},
		skus:    map[string]sku.SKU{},
		models:  map[string]model.Model{},
		engines: map[string]Engine{},
		regions: maps.Clone(m.regions),

		quantizations: map[string]model.Quantization{},
		objectives:    map[v1beta1.OptimizeFor]Objective{},

		products: map[string]sku.GPU{},
	}
	for _, step := range []func(*Catalog) error{
		m.indexGPUs, m.indexProducts, m.indexSKUs, m.indexQuantizations, m.indexEngines, m.indexModels, m.indexRepos, m.indexObjectives,
		m.indexMeasurements,
	} {
		if err := step(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (m *merger) indexGPUs(c *Catalog) error {
	for _, o := range m.gpus.sorted() {
		for _, name := range append([]string{o.entry.Name}, o.entry.Aliases...) {
			if other, taken := c.gpus[gpuKey(name)]; taken {
				return fmt.Errorf("catalogue file %q: GPU %q: the name %q already belongs to %q",
					o.file, o.entry.Name, name, other.Name)
			}
			c.gpus[gpuKey(name)] = o.entry
		}
	}
	return m.indexClasses(c)
}

// indexClasses adds each class as a name for a GPU, unless a GPU has it as a name or alias. It means the first GPU of
// the class by name.
func (m *merger) indexClasses(c *Catalog) error {
	for _, o := range m.gpus.sorted() {
		part, taken := c.gpus[gpuKey(o.entry.Class)]
		if taken && !strings.EqualFold(part.Class, o.entry.Class) {
			return fmt.Errorf("catalogue file %q: GPU %q: class: %q is already the name of %q, a GPU of class %q",
				o.file, o.entry.Name, o.entry.Class, part.Name, part.Class)
		}
		if !taken {
			c.gpus[gpuKey(o.entry.Class)] = o.entry
		}
	}
	return nil
}

func (m *merger) indexSKUs(c *Catalog) error {
	for key, o := range m.skus {
		c.skus[key] = o.entry
	}
	for _, o := range m.skus.sorted() {
		gpu, known := c.GPU(o.entry.GPU)
		if o.entry.GPU != "" && (!known || gpu.Name != o.entry.GPU) {
			return fmt.Errorf("catalogue file %q: instance type %q: gpu: %q is not the name of a GPU%s",
				o.file, o.entry.Name, o.entry.GPU, suggestion(closest(o.entry.GPU, c.gpuNames())))
		}
		c.sortedSKUs = append(c.sortedSKUs, o.entry)
	}
	slices.SortStableFunc(c.sortedSKUs, func(a, b sku.SKU) int {
		return cmp.Or(cmp.Compare(a.Cloud, b.Cloud), cmp.Compare(a.Name, b.Name))
	})
	return nil
}

func (m *merger) indexEngines(c *Catalog) error {
	for _, o := range m.engines.sorted() {
		for _, name := range sortedKeys(o.entry.ComputeCapability) {
			if name == "default" {
				continue
			}
			if err := c.knownQuantization(name); err != nil {
				return fmt.Errorf("catalogue file %q: engine %q: computeCapability: %w", o.file, o.entry.Name, err)
			}
		}
		c.engines[strings.ToLower(o.entry.Name)] = o.entry
	}
	return nil
}

func (m *merger) indexModels(c *Catalog) error {
	for _, o := range m.models.sorted() {
		for i, a := range o.entry.Artifacts {
			if err := c.knownArtifact(a); err != nil {
				return fmt.Errorf("catalogue file %q: model %q: artifacts[%d].%w", o.file, o.entry.Name, i, err)
			}
		}
		for _, name := range append([]string{o.entry.Name, o.entry.HubID}, o.entry.Aliases...) {
			if other, taken := c.models[strings.ToLower(name)]; taken {
				return fmt.Errorf("catalogue file %q: model %q: the name %q already belongs to %q",
					o.file, o.entry.Name, name, other.Name)
			}
			c.models[strings.ToLower(name)] = o.entry
		}
		c.sortedModels = append(c.sortedModels, o.entry)
	}
	return nil
}

// knownArtifact returns an error for an unknown name in an artifact, or nil.
func (c *Catalog) knownArtifact(a model.Artifact) error {
	engine, known := c.engines[a.Engine]
	if !known {
		return fmt.Errorf("engine: %q is not the name of an engine%s", a.Engine, suggestion(closest(a.Engine, sortedKeys(c.engines))))
	}
	if err := c.knownQuantization(a.Quantization); err != nil {
		return fmt.Errorf("quantization: %w", err)
	}
	for i, f := range a.Flags {
		if _, known := engine.Flags[f.Name]; !known {
			return fmt.Errorf("flags[%d].name: %q is not a flag of engine %s%s",
				i, f.Name, engine.Name, suggestion(closest(f.Name, sortedKeys(engine.Flags))))
		}
	}
	return nil
}
