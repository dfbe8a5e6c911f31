// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
)

// Names of 16-bit formats, and the engine's flag and value for fp16.
const (
	bfloat16  = "bf16"
	float16   = "fp16"
	dtypeFlag = "dtype"
	half      = "half"
)

// computed has weights in their published format, or in another 16-bit format instead of insteadOf.
type computed struct {
	artifact  model.Artifact
	insteadOf string
}

// computed adds fp16 for weights that are published in bf16. fp16 replaces bf16 if the user requests that. Otherwise it
// comes after bf16, for GPUs without bf16, if the model is known to work in fp16 or the user consents.
func (p *Planner) computed(r Request, artifacts []model.Artifact) ([]computed, error) {
	asked := r.Constraints.Engine.DType
	inFloat16 := asked == half || asked == "float16"
	var out []computed
	for _, a := range artifacts {
		same := computed{artifact: a}
		if !p.isBFloat16(a) {
			out = append(out, same)
			continue
		}
		switch {
		case inFloat16 && r.Model.Float16 == model.Float16Breaks:
			return nil, &InfeasibleError{
				Reason: v1beta1.ReasonSpecInvalid,
				Message: fmt.Sprintf("flag %s: %s overflows in %s, so engine %s refuses it: leave the flag out",
					dtypeFlag, r.Model.Name, float16, a.Engine),
			}
		case inFloat16:
			out = append(out, computed{artifact: inHalf(a, "inference.engine.args requests it")})
		case p.mayConvert(r):
			converted := inHalf(a, "the GPUs cannot compute in "+bfloat16)
			out = append(out, same, computed{artifact: converted, insteadOf: a.Quantization})
		default:
			out = append(out, same)
		}
	}
	return out, nil
}

// mayConvert reports whether fp16 may stand in for bf16.
func (p *Planner) mayConvert(r Request) bool {
	if asked := r.Constraints.Engine.DType; asked != "" && asked != automatic || r.Model.Float16 == model.Float16Breaks {
		return false
	}
	return r.Model.Float16 == model.Float16Survives || slices.ContainsFunc(r.Constraints.AllowedQuantizations, p.isFloat16)
}

// inHalf returns an artifact that the engine converts to fp16 at load time.
func inHalf(a model.Artifact, why string) model.Artifact {
	out := a.Clone()
	out.Quantization = float16
	out.Flags = append(out.Flags, model.Flag{Name: dtypeFlag, Value: half, Why: why})
	return out
}

// isBFloat16 reports whether weights are in bf16 and the engine has a flag to convert them.
func (p *Planner) isBFloat16(a model.Artifact) bool {
	e := p.engines[strings.ToLower(a.Engine)]
	return a.Quantization == bfloat16 && e != nil && e.Split == catalog.SplitTensor
}

// isFloat16 reports whether a name means fp16.
func (p *Planner) isFloat16(name string) bool {
	format, known := p.catalog.Quantization(float16)
	same := func(other string) bool { return strings.EqualFold(name, other) }
	return known && (same(format.Name) || slices.ContainsFunc(format.Aliases, same))
}
