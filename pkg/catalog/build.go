// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/sku"
)

// build checks what entries say about each other and indexes them.
func (m *merger) build() (*Catalog, error) {
	c := &Catalog{
		gpus:    map[string]sku.GPU{},
		skus:    map[string]sku.SKU{},
		models:  map[string]model.Model{},
		engines: map[string]Engine{},
		regions: maps.Clone(m.regions),
	}
	for _, step := range []func(*Catalog) error{m.indexGPUs, m.indexSKUs, m.indexEngines, m.indexModels} {
		if err := step(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (m *merger) indexGPUs(c *Catalog) error {
	for _, o := range m.gpus.sorted() {
		for _, name := range append([]string{o.entry.Name}, o.entry.Aliases...) {
			if other, taken := c.gpus[strings.ToLower(name)]; taken {
				return fmt.Errorf("catalogue file %q: GPU %q: the name %q means %q already",
					o.file, o.entry.Name, name, other.Name)
			}
			c.gpus[strings.ToLower(name)] = o.entry
		}
	}
	return nil
}

func (m *merger) indexSKUs(c *Catalog) error {
	for key, o := range m.skus {
		c.skus[key] = o.entry
	}
	for _, o := range m.skus.sorted() {
		gpu, known := c.gpus[strings.ToLower(o.entry.GPU)]
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
	for key, o := range m.engines {
		c.engines[key] = o.entry
	}
	return nil
}

func (m *merger) indexModels(c *Catalog) error {
	for _, o := range m.models.sorted() {
		for i, a := range o.entry.Artifacts {
			if _, known := c.engines[a.Engine]; !known {
				return fmt.Errorf("catalogue file %q: model %q: artifacts[%d].engine: %q is not the name of an engine%s",
					o.file, o.entry.Name, i, a.Engine, suggestion(closest(a.Engine, sortedKeys(c.engines))))
			}
		}
		for _, name := range append([]string{o.entry.Name, o.entry.HubID}, o.entry.Aliases...) {
			if other, taken := c.models[strings.ToLower(name)]; taken {
				return fmt.Errorf("catalogue file %q: model %q: the name %q means %q already",
					o.file, o.entry.Name, name, other.Name)
			}
			c.models[strings.ToLower(name)] = o.entry
		}
		c.sortedModels = append(c.sortedModels, o.entry)
	}
	return nil
}
