// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

// Adapter is a low-rank adapter served with the model.
type Adapter struct {
	// Name of the adapter in requests.
	Name string
	// Dir is where the adapter's source is mounted, and Path its path there; empty means Dir itself.
	Dir, Path string
	// Strength scales the adapter; 1 is as trained.
	Strength float64
}
