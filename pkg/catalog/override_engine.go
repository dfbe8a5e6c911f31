// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// EngineOverride describes another image of an engine. The rest stays as in the catalogue.
type EngineOverride struct {
	// Name of the engine.
	Name string `json:"name"`
	// WorkerCommand is the command on all machines but the first, in the administrator's image. With it, one model can
	// spread over several machines.
	WorkerCommand []string `json:"workerCommand"`
}

// changes are the overrides of a layer.
type changes struct {
	skus    entries[Override]
	engines entries[EngineOverride]
}

func validateEngineOverride(o EngineOverride) error {
	var c check
	c.text("name", o.Name, isLowerName, "must be a lower-case name such as llamacpp")
	if len(o.WorkerCommand) == 0 {
		return errors.New("it has no effect: set workerCommand")
	}
	c.text("workerCommand[0]", o.WorkerCommand[0], path.IsAbs, "must be the path of a program in the image")
	return c.err
}

// overrideEngines changes the engines of this layer and earlier ones.
func (m *merger) overrideEngines(overrides entries[EngineOverride]) error {
	for _, o := range overrides.sorted() {
		key := strings.ToLower(o.entry.Name)
		known, ok := m.engines[key]
		if !ok {
			return fmt.Errorf("catalogue file %q: engineOverrides: there is no engine %q", o.file, o.entry.Name)
		}
		known.entry = known.entry.Clone()
		known.entry.MultiNode, known.entry.WorkerCommand = true, slices.Clone(o.entry.WorkerCommand)
		m.engines[key] = known
	}
	return nil
}
