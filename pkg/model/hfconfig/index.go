// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hfconfig

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/pkg/model"
)

const (
	// maxIndex bounds an index: it names every tensor, of which models with many experts have 100,000s.
	maxIndex = 32 << 20
	// maxWeights is what a repository may hold, as in the catalogue.
	maxWeights = 1 << 43
	// mostAhead is more than the layers that any model predicts tokens ahead with.
	mostAhead = 8
)

// index is what an index says of the weights.
type index struct {
	// bytes of all tensors; 0 where it does not say.
	bytes int64
	names map[string]json.RawMessage
}

func readIndex(data []byte) (index, error) {
	const file = "model.safetensors.index.json"
	if len(data) == 0 {
		return index{}, nil
	}
	o, err := decodeObject(file, data, maxIndex)
	if err != nil {
		return index{}, err
	}
	out := index{names: o.sub("weight_map")}
	raw := o.sub("metadata")["total_size"]
	if isNull(raw) {
		return out, nil
	}
	if out.bytes, err = wholeNumber(raw); err != nil || out.bytes < 1 || out.bytes > maxWeights {
		return index{}, &FieldError{
			File: file, Field: "metadata.total_size", Value: shown(string(raw)),
			Must: fmt.Sprintf("must be a whole number from 1 to %d", int64(maxWeights)),
		}
	}
	return out, nil
}

// idle estimates how many of the bytes no engine loads: an output matrix that the embedding doubles, and
// layers after the last one, which only speculative decoding uses. The latter are taken to be like the
// last layer and to have the format of the whole.
func (x index) idle(s model.Shape, bytesPerParam int64) int64 {
	var idle int64
	if _, stored := x.names["lm_head.weight"]; stored && s.Tied {
		idle += bytesPerParam * s.EmbeddingParams()
	}
	if ahead := x.ahead(s.Layers); ahead > 0 {
		kinds := s.LayerKinds()
		hidden := int64(s.Hidden)
		params := float64(ahead) * float64(kinds[len(kinds)-1].Params()+2*hidden*hidden)
		idle += int64(float64(x.bytes) * params / (params + float64(s.Params())))
	}
	if idle >= x.bytes {
		return 0
	}
	return idle
}

// ahead counts the language model's layers after the last one. Some repositories number them on, some name
// them mtp. Encoders have layers too, which do not count.
func (x index) ahead(layers int) int {
	seen := map[string]bool{}
	for name := range x.names {
		path, rest, ok := strings.Cut(name, ".layers.")
		if !ok {
			continue
		}
		word, _, _ := strings.Cut(rest, ".")
		number, err := strconv.Atoi(word)
		if err != nil {
			continue
		}
		switch path {
		case "mtp", "model.mtp":
			seen[word] = true
		case "model", "language_model.model", "model.language_model":
			if number >= layers {
				seen[word] = true
			}
		}
	}
	return min(len(seen), mostAhead)
}

// wholeNumber reads an integer, or what some writers make of one: 12.0.
func wholeNumber(raw json.RawMessage) (int64, error) {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return 0, fmt.Errorf("reading a number: %w", err)
	}
	if f < 0 || f > maxWeights || f != float64(int64(f)) {
		return -1, nil
	}
	return int64(f), nil
}
