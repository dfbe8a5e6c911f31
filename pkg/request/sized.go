// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
)

// Formats looks up formats of weights.
type Formats interface {
	Quantization(name string) (model.Quantization, bool)
}

// Sized returns the model with estimated sizes for weights of unknown size.
func Sized(m model.Model, known Formats) model.Model {
	for i := range m.Artifacts {
		a := &m.Artifacts[i]
		format, ok := known.Quantization(a.Quantization)
		if a.Bytes() > 0 || !ok {
			continue
		}
		a.WeightBytes = int64(physics.NewModel(m.Shape, physics.Weights{Format: format}).Bytes())
		a.WeightBasis = model.BytesEstimated
	}
	return m
}
