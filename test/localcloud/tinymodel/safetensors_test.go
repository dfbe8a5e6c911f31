// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package tinymodel

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Plans and tests name the files by their checksums.
func TestCheckpointIsAlwaysTheSame(t *testing.T) {
	files, err := Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	adapter, err := Adapter()
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range adapter {
		files["adapter/"+name] = data
	}
	type facts struct {
		SHA256 string
		Size   int
	}
	got := map[string]facts{}
	for name, data := range files {
		sum := sha256.Sum256(data)
		got[name] = facts{hex.EncodeToString(sum[:])[:16], len(data)}
	}
	want := map[string]facts{
		"adapter/README.md":                 {SHA256: "b89e279549ba061c", Size: 79},
		"adapter/adapter_config.json":       {SHA256: "6c4097fabda7b73e", Size: 236},
		"adapter/adapter_model.safetensors": {SHA256: "ee5ccf9b5ec46f7d", Size: 23544},
		"README.md":                         {SHA256: "b89e279549ba061c", Size: 79},
		"config.json":                       {SHA256: "3e4942f37224c9ff", Size: 458},
		"generation_config.json":            {SHA256: "5d1ec5cead41d3f7", Size: 45},
		"model-00001-of-00002.safetensors":  {SHA256: "cb4b7ef0df6bb468", Size: 214304},
		"model-00002-of-00002.safetensors":  {SHA256: "5c02cf798035a077", Size: 560928},
		"model.safetensors.index.json":      {SHA256: "bcf0a7405aa91dbf", Size: 3195},
		"tokenizer.json":                    {SHA256: "f2e337e37318a78f", Size: 10694},
		"tokenizer_config.json":             {SHA256: "dd9d9a1e3fa70356", Size: 383},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestCheckpointIsWhole(t *testing.T) {
	files, err := Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	var index struct {
		Metadata struct {
			Total int `json:"total_size"`
		} `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(files["model.safetensors.index.json"], &index); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, name := range slices.Compact(slices.Sorted(maps.Values(index.WeightMap))) {
		data := files[name]
		length := binary.LittleEndian.Uint64(data)
		var header map[string]struct {
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}
		if err := json.Unmarshal(data[8:8+length], &header); err != nil {
			t.Fatal(err)
		}
		delete(header, "__metadata__")
		for tensor, entry := range header {
			elements := 1
			for _, n := range entry.Shape {
				elements *= n
			}
			if index.WeightMap[tensor] != name || entry.Offsets[1]-entry.Offsets[0] != 2*elements {
				t.Errorf("%s: %s has shape %v at %v, and is in %s by the index", name, tensor, entry.Shape, entry.Offsets, index.WeightMap[tensor])
			}
			total += 2 * elements
		}
		if length%8 != 0 || len(data) <= int(length)+8 {
			t.Errorf("%s: header of %d bytes in a file of %d", name, length, len(data))
		}
	}
	// Two tensors of the vocabulary, one norm, nine of each layer.
	if len(index.WeightMap) != 3+9*CheckpointLayers || total != index.Metadata.Total {
		t.Errorf("%d tensors with %d bytes, and %d by the index", len(index.WeightMap), total, index.Metadata.Total)
	}
}
