// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package calibration

import (
	"cmp"
	"crypto/ed25519"
	"path/filepath"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/catalog"
)

// Input is a calibration file.
type Input struct {
	Name string
	Data []byte
}

// Overlay adds files to a catalogue in the order of their base names. If two runs have one name, the later one counts.
// It leaves out the files that Add refuses. It returns the names of the added files, and an error for each refused
// file.
func Overlay(c *catalog.Catalog, files []Input, keys []ed25519.PublicKey) (out *catalog.Catalog, used []string, refused []error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b Input) int {
		return cmp.Or(strings.Compare(filepath.Base(a.Name), filepath.Base(b.Name)), strings.Compare(a.Name, b.Name))
	})
	for _, file := range files {
		added, err := Add(c, file.Name, file.Data, keys)
		if err != nil {
			refused = append(refused, err)
			continue
		}
		c, used = added, append(used, file.Name)
	}
	return c, used, refused
}
