// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
)

// chosenWeights are the weights of a data type, with notes.
type chosenWeights struct {
	weights physics.Weights
	notes   []string
	// kvType is the KV cache type that the weights require, if any.
	kvType string
}

// weightsFor returns the weights of a model for an engine in a data type: published weights, or else an estimate from
// the model's shape. An empty data type means the weights as released.
func weightsFor(known *catalog.Catalog, m *model.Model, engine *catalog.Engine, dtype string) (chosenWeights, error) {
	published := slices.DeleteFunc(slices.Clone(m.Artifacts), func(a model.Artifact) bool { return a.Engine != engine.Name })
	if dtype == "" || dtype == "auto" {
		if released := releasedOf(published); released != nil {
			return asPublished(known, released, released.Quantization), nil
		}
		dtype = "bf16"
	}
	names, err := formatsFor(known, published, dtype)
	if err != nil {
		return chosenWeights{}, err
	}
	for _, name := range names {
		for i := range published {
			if sameBytes(published[i].Quantization, name) {
				return asPublished(known, &published[i], name), nil
			}
		}
	}
	format, _ := known.Quantization(names[0])
	return chosenWeights{
		weights: physics.Weights{Format: format, Basis: v1beta1.BasisEstimated},
		notes:   []string{fmt.Sprintf("the catalogue has no %s weights of %s for %s: their size is estimated from the model's shape", format.Name, m.HubID, engine.Name)},
	}, nil
}

// releasedOf returns the publisher's own weights, or else the first, or nil.
func releasedOf(published []model.Artifact) *model.Artifact {
	if i := slices.IndexFunc(published, func(a model.Artifact) bool { return a.Native }); i >= 0 {
		return &published[i]
	}
	if len(published) > 0 {
		return &published[0]
	}
	return nil
}

func asPublished(known *catalog.Catalog, a *model.Artifact, name string) chosenWeights {
	format, _ := known.Quantization(name) // the catalogue checked that it exists
	basis := v1beta1.BasisExact
	if !a.BytesExact() {
		basis = v1beta1.BasisEstimated
	}
	out := chosenWeights{weights: physics.Weights{Format: format, Bytes: a.LoadedBytes(), Basis: basis}}
	for _, flag := range a.Flags {
		if flag.Name == "kv-cache-dtype" {
			out.kvType = flag.Value
		}
	}
	if !a.Native {
		out.notes = []string{fmt.Sprintf("the figures are for the weights in repository %s", a.Repo)}
	}
	return out
}

// formatsFor returns the possible formats of a data type, the likeliest first.
func formatsFor(known *catalog.Catalog, published []model.Artifact, dtype string) ([]string, error) {
	released := releasedOf(published)
	is := func(name string) bool { return released != nil && released.Quantization == name }
	switch strings.ToLower(dtype) {
	case "fp8":
		return []string{"fp8", "fp8-channel"}, nil
	case "fp4":
		if is("mxfp4") {
			return []string{"mxfp4"}, nil
		}
		return []string{"nvfp4", "mxfp4"}, nil
	case "int4":
		if is("int4-experts") {
			return []string{"int4-experts"}, nil
		}
		return []string{"awq", "gptq-int4", "w4a16"}, nil
	}
	format, ok := known.Quantization(dtype)
	if !ok {
		return nil, usageError("--dtype: %q is not a format of weights: use %s", dtype, orList(formatNames(known)))
	}
	return []string{format.Name}, nil
}

func formatNames(known *catalog.Catalog) []string {
	names := []string{"fp4", "int4"}
	for _, q := range known.Quantizations() {
		names = append(names, q.Name)
	}
	return names
}

// sameBytes reports whether weights in one published format have the size of another: engines convert between 16-bit
// formats as they load.
func sameBytes(published, wanted string) bool {
	sixteen := []string{"bf16", "fp16"}
	return published == wanted || slices.Contains(sixteen, published) && slices.Contains(sixteen, wanted)
}
