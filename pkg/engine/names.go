// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"path"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/model"
)

// ServedNames returns the model's names at an endpoint, in this order: the name of the Workspace's set if there is one,
// the lower-case basename of the hub's id, the preset's aliases, and the hub's id. The endpoint lists the first one.
func ServedNames(m model.Model, set string) []string {
	candidates := append([]string{set, strings.ToLower(path.Base(m.HubID))}, m.Aliases...)
	candidates = append(candidates, m.HubID)
	names := make([]string, 0, len(candidates))
	for _, name := range candidates {
		if name != "" && name != "." && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
