// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

// Adapter is a low-rank adapter that is served beside the model.
type Adapter struct {
	// Name that requests ask for.
	Name string
	// Dir is where its source is mounted, and Path where in there it lies; empty means Dir itself.
	Dir, Path string
	// Strength scales it; 1 is as it was trained.
	Strength float64
}
