// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/sku"
)

// Load decodes the files of base and checks the result. Every overlay may add entries, or replace entries of the same
// name. Each file may have any of the lists gpus, skus, overrides, quantizations, models, engines, engineOverrides,
// objectives and, only in base, measurements. The overrides of a layer change the SKUs and engines of that layer and of
// earlier ones. A file whose name does not end in .yaml is an error. An overlay may be a mounted ConfigMap, so Load
// skips names that start with two dots.
func Load(base fs.FS, overlays ...fs.FS) (*Catalog, error) {
	m := merger{
		gpus:    entries[sku.GPU]{},
		skus:    entries[sku.SKU]{},
		models:  entries[model.Model]{},
		engines: entries[Engine]{},
		regions: map[string]string{},

		quantizations: entries[model.Quantization]{},
		objectives:    entries[Objective]{},
		measurements:  entries[Measurement]{},
	}
	for layer, fsys := range append([]fs.FS{base}, overlays...) {
		if err := m.layer(fsys, layer); err != nil {
			return nil, err
		}
	}
	return m.build()
}

// merger collects the entries of all layers.
type merger struct {
	gpus    entries[sku.GPU]
	skus    entries[sku.SKU]
	models  entries[model.Model]
	engines entries[Engine]

	quantizations entries[model.Quantization]
	objectives    entries[Objective]
	measurements  entries[Measurement]
	// regions is the reference region by cloud.
	regions map[string]string
}

// layer reads all files of one file system in the order of their paths.
func (m *merger) layer(fsys fs.FS, layer int) error {
	paths, err := yamlPaths(fsys)
	if err != nil {
		return err
	}
	overrides := changes{skus: entries[Override]{}, engines: entries[EngineOverride]{}}
	for _, p := range paths {
		data, err := fs.ReadFile(fsys, p)
		if err != nil {
			return fmt.Errorf("reading catalogue file %q: %w", p, err)
		}
		if err := m.file(data, source{file: p, layer: layer}, overrides); err != nil {
			return fmt.Errorf("catalogue file %q: %w", p, err)
		}
	}
	return cmp.Or(m.override(overrides.skus), m.overrideEngines(overrides.engines))
}

// file decodes and checks one file, and collects its overrides. Layer 0, the base, must name its sources.
func (m *merger) file(data []byte, at source, overrides changes) error {
	doc, err := decode(data)
	if err != nil {
		return err
	}
	if err := validateHeader(doc, at.layer == 0); err != nil {
		return err
	}
	if at.layer > 0 && len(doc.Measurements) > 0 {
		return errors.New("measurements: not allowed in an overlay: put them into a signed calibration file, for kubectl berth with --calibration, " +
			"for the controller in the chart's calibration.configMap")
	}
	if doc.Region != "" {
		m.regions[doc.Cloud] = doc.Region
	}
	for i := range doc.SKUs {
		doc.SKUs[i].Cloud = cmp.Or(doc.SKUs[i].Cloud, doc.Cloud)
	}
	return cmp.Or(
		gather(m.gpus, doc.GPUs, kind[sku.GPU]{"gpus", func(g sku.GPU) string { return g.Name }, validateGPU}, at),
		gather(m.skus, doc.SKUs, kind[sku.SKU]{"skus", func(s sku.SKU) string { return s.Name }, validateSKU}, at),
		gather(overrides.skus, doc.Overrides,
			kind[Override]{"overrides", func(o Override) string { return o.Name }, validateOverride}, at),
		gather(overrides.engines, doc.EngineOverrides,
			kind[EngineOverride]{"engineOverrides", func(o EngineOverride) string { return o.Name }, validateEngineOverride}, at),
		gather(m.quantizations, doc.Quantizations,
			kind[model.Quantization]{"quantizations", func(q model.Quantization) string { return q.Name }, validateQuantization}, at),
		gather(m.models, doc.Models, kind[model.Model]{"models", func(m model.Model) string { return m.Name }, validateModel}, at),
		gather(m.objectives, doc.Objectives,
			kind[Objective]{"objectives", func(o Objective) string { return string(o.Name) }, validateObjective}, at),
		gather(m.measurements, doc.Measurements,
			kind[Measurement]{"measurements", func(m Measurement) string { return m.Name }, Measurement.Validate}, at),
		gather(m.engines, doc.Engines, kind[Engine]{"engines", func(e Engine) string { return e.Name }, Engine.Validate}, at),
	)
}

// kind has the functions that name and check the entries of one list.
type kind[T any] struct {
	list     string
	name     func(T) string
	validate func(T) error
}

// gather checks the entries of one list of a file and adds them to the merger.
func gather[T any](into entries[T], from []T, k kind[T], at source) error {
	for i, entry := range from {
		err := k.validate(entry)
		if err == nil {
			err = into.put(k.name(entry), origin[T]{entry: entry, source: at})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", entryName(k.list, i, k.name(entry)), err)
		}
	}
	return nil
}

// yamlPaths lists the .yaml files of a file system. Any other file is an error, because Load would silently ignore it.
func yamlPaths(fsys fs.FS) ([]string, error) {
	var paths []string
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("reading catalogue directory %q: %w", p, err)
		case strings.HasPrefix(d.Name(), ".."):
			// A ConfigMap's mount keeps its files in ..data and links to them.
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		case path.Ext(p) != ".yaml":
			return fmt.Errorf("catalogue file %q: its name must end in .yaml", p)
		}
		paths = append(paths, p)
		return nil
	})
	slices.Sort(paths)
	return paths, err
}
