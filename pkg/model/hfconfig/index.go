// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hfconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/pkg/jsonstream"
	"github.com/modelberth/modelberth/pkg/model"
)

const (
	// indexFile is the name of an index.
	indexFile = "model.safetensors.index.json"
	// maxWeights limits the bytes of a repository's weights, as in the catalogue.
	maxWeights = 1 << 43
	// mostAhead exceeds the number of layers that any model has for speculative decoding.
	mostAhead = 8
)

// Tensors summarises a repository's tensors. It does not keep their names, which can fill 32 MiB.
type Tensors struct {
	// Bytes of all tensors; 0 if unknown.
	Bytes int64

	hasHead bool
	// mtp and numbered have the numbers of layers in the two ways in which repositories name them.
	mtp, numbered map[int]bool
}

// ReadIndex reads a model.safetensors.index.json. Its error is a *FieldError, whose text includes an error of r.
func ReadIndex(r io.Reader) (Tensors, error) {
	var out Tensors
	d := jsonstream.New(r)
	err := d.Object(func(key string) error {
		switch key {
		case "metadata":
			return d.ObjectIfAny(out.readMetadata(d))
		case "weight_map":
			return d.ObjectIfAny(func(name string) error {
				out.Add(name)
				return d.Skip()
			})
		}
		return d.Skip()
	})
	if err == nil {
		err = d.End()
	}
	field, isField := errors.AsType[*FieldError](err)
	_, isOther := errors.AsType[*jsonstream.KindError](err)
	switch {
	case isField:
		return Tensors{}, field
	case isOther:
		return Tensors{}, &FieldError{File: indexFile, Must: "is not a JSON object"}
	case err != nil:
		return Tensors{}, &FieldError{File: indexFile, Must: fmt.Sprintf("is not JSON: %v, after %d bytes", err, d.Offset())}
	}
	return out, nil
}

func (t *Tensors) readMetadata(d *jsonstream.Decoder) func(key string) error {
	return func(key string) error {
		if key != "total_size" {
			return d.Skip()
		}
		var raw json.RawMessage
		err := d.Value(&raw)
		if err != nil || isNull(raw) {
			return err
		}
		if t.Bytes, err = wholeNumber(raw); err != nil || t.Bytes < 1 || t.Bytes > maxWeights {
			return &FieldError{
				File: indexFile, Field: "metadata.total_size", Value: shown(string(raw)),
				Must: fmt.Sprintf("must be a whole number from 1 to %d", int64(maxWeights)),
			}
		}
		return nil
	}
}

// Add records the name of a tensor.
func (t *Tensors) Add(name string) {
	if name == "lm_head.weight" {
		t.hasHead = true
	}
	path, rest, ok := strings.Cut(name, ".layers.")
	if !ok {
		return
	}
	word, _, _ := strings.Cut(rest, ".")
	number, err := strconv.Atoi(word)
	if err != nil || number < 0 || number > maxLayers+mostAhead {
		return
	}
	switch path {
	case "mtp", "model.mtp":
		t.mtp = including(t.mtp, number)
	case "model", "language_model.model", "model.language_model":
		t.numbered = including(t.numbered, number)
	}
}

func including(seen map[int]bool, number int) map[int]bool {
	if seen == nil {
		seen = map[int]bool{}
	}
	seen[number] = true
	return seen
}

// idle estimates how many of the bytes no engine loads: an output matrix that equals the embedding, and layers after
// the last one for speculative decoding. It assumes that those layers are like the last layer, and in the same format.
func (t Tensors) idle(s model.Shape, bytesPerParam int64) int64 {
	var idle int64
	if t.hasHead && s.Tied {
		idle += bytesPerParam * s.EmbeddingParams()
	}
	if ahead := t.ahead(s.Layers); ahead > 0 {
		kinds := s.LayerKinds()
		hidden := int64(s.Hidden)
		params := float64(ahead) * float64(kinds[len(kinds)-1].Params()+2*hidden*hidden)
		idle += int64(float64(t.Bytes) * params / (params + float64(s.Params())))
	}
	if idle >= t.Bytes {
		return 0
	}
	return idle
}

// ahead counts the language model's layers after the last one. Some repositories continue the numbers, others use the
// name mtp. Layers of encoders do not count.
func (t Tensors) ahead(layers int) int {
	seen := maps.Clone(t.mtp)
	for number := range t.numbered {
		if number >= layers {
			seen = including(seen, number)
		}
	}
	return min(len(seen), mostAhead)
}

// wholeNumber reads an integer, which some writers write as 12.0.
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
