// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"strings"

	"github.com/modelberth/modelberth/pkg/sku"
)

// GPUs returns all GPUs by name.
func (c *Catalog) GPUs() []sku.GPU {
	var out []sku.GPU
	for _, key := range sortedKeys(c.gpus) {
		// The other keys are aliases.
		if g := c.gpus[key]; strings.ToLower(g.Name) == key {
			out = append(out, g.Clone())
		}
	}
	return out
}
