// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"strings"
)

// entries holds entries by lower-case name.
type entries[T any] map[string]origin[T]

// origin is an entry with its place in a file.
type origin[T any] struct {
	source
	entry T
}

// source is a file of a layer; layer 0 is the base.
type source struct {
	file  string
	layer int
}

// put adds an entry, or replaces the entry of an earlier layer.
func (e entries[T]) put(name string, o origin[T]) error {
	key := strings.ToLower(name)
	if earlier, ok := e[key]; ok && earlier.layer == o.layer {
		return fmt.Errorf("the name is taken by an entry of file %q", earlier.file)
	}
	e[key] = o
	return nil
}

// sorted returns the entries by name.
func (e entries[T]) sorted() []origin[T] {
	out := make([]origin[T], 0, len(e))
	for _, key := range sortedKeys(e) {
		out = append(out, e[key])
	}
	return out
}
