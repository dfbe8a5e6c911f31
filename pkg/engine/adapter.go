// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

// Adapter is a low-rank adapter served with the model.
type Adapter struct {
	// Name in requests.
	Name string
	// Dir is the mount of its source, and Path its path there; empty means Dir itself.
	Dir, Path string
	// Strength scales it; 1 is as it was trained.
	Strength float64
}
