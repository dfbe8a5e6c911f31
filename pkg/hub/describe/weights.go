// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/hub"
)

const (
	// maxHeader bounds the header of a safetensors file: published ones have some 100 KiB.
	maxHeader = 32 << 20
	// maxShards bounds the files whose headers are read one by one.
	maxShards = 256
	// maxTensors bounds the size of what a file may claim to hold.
	maxTensors = 1 << 43
)

// weightIndex returns an index of the tensors that vLLM would load: the repository's own, or one made of
// the headers of its safetensors files. It is nil where the repository does not tell.
func weightIndex(ctx context.Context, c *hub.Client, at hub.File) ([]byte, error) {
	index, _, err := readJSON(ctx, c, at, "model.safetensors.index.json", maxIndex)
	if err == nil && hasTotal(index) {
		return index, nil
	}
	if err != nil && !isMissing(err) {
		return nil, err
	}
	tensors := tensorIndex{WeightMap: map[string]string{}}
	if err != nil {
		switch err := tensors.addFile(ctx, c, at, "model.safetensors"); {
		case err == nil:
			return tensors.encode()
		case !isMissing(err):
			return nil, err
		}
	}
	files, err := shards(ctx, c, at)
	if err != nil || len(files) == 0 || len(files) > maxShards {
		return nil, err
	}
	for _, path := range files {
		if err := tensors.addFile(ctx, c, at, path); err != nil {
			return nil, err
		}
	}
	return tensors.encode()
}

func hasTotal(index []byte) bool {
	var out tensorIndex
	return json.Unmarshal(index, &out) != nil || (out.Metadata.TotalSize != nil && string(out.Metadata.TotalSize) != "null")
}

// shards lists the files that vLLM loads: safetensors at the root, but not those of other formats' users.
func shards(ctx context.Context, c *hub.Client, at hub.File) ([]string, error) {
	entries, err := c.Tree(ctx, at.Repo, at.Revision)
	switch {
	case err != nil && (isMissing(err) || hub.LacksAPI(err)):
		return nil, nil
	case err != nil:
		return nil, err
	}
	var out []string
	for _, e := range entries {
		atRoot := !strings.Contains(e.Path, "/")
		other := strings.HasPrefix(e.Path, "consolidated") || strings.HasPrefix(e.Path, "adapter_model")
		if atRoot && !other && strings.HasSuffix(e.Path, ".safetensors") {
			out = append(out, e.Path)
		}
	}
	return out, nil
}

// tensorIndex has the form of model.safetensors.index.json.
type tensorIndex struct {
	Metadata struct {
		TotalSize json.RawMessage `json:"total_size,omitempty"`
	} `json:"metadata"`
	WeightMap map[string]string `json:"weight_map"`

	bytes int64
}

func (t *tensorIndex) encode() ([]byte, error) {
	t.Metadata.TotalSize = fmt.Append(nil, t.bytes)
	out, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encoding an index of the weights: %w", err)
	}
	return out, nil
}

// addFile adds the tensors of one safetensors file, of which only the header is read: 8 bytes that say how
// long it is, and JSON with the place of each tensor.
func (t *tensorIndex) addFile(ctx context.Context, c *hub.Client, at hub.File, path string) error {
	at.Path = path
	start, err := c.ReadStart(ctx, at, 8)
	if err != nil {
		return err
	}
	length := binary.LittleEndian.Uint64(start)
	if length < 2 || length > maxHeader {
		return malformed(c, at, fmt.Errorf("not a safetensors file: its header would have %d bytes", length))
	}
	// From the beginning again, because a server may ignore where a range starts.
	whole, err := c.ReadStart(ctx, at, 8+int64(length))
	if err != nil {
		return err
	}
	if err := t.add(path, whole[8:]); err != nil {
		return malformed(c, at, err)
	}
	return nil
}

// malformed says that what a hub sent is not the file that was asked for, as a damaged mirror or a portal
// would: asking again later may help.
func malformed(c *hub.Client, f hub.File, err error) error {
	return &hub.UnreachableError{Endpoint: c.Endpoint(), File: f, Err: err}
}

// add adds the tensors of a file's header.
func (t *tensorIndex) add(path string, header []byte) error {
	var tensors map[string]struct {
		Offsets [2]int64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(header, &tensors); err != nil {
		return fmt.Errorf("not a safetensors file: its header is not JSON: %w", err)
	}
	delete(tensors, "__metadata__")
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		from, to := tensors[name].Offsets[0], tensors[name].Offsets[1]
		if from < 0 || to < from || to-from > maxTensors-t.bytes {
			return fmt.Errorf("tensor %.100q lies from byte %d to %d", name, from, to)
		}
		t.bytes += to - from
		t.WeightMap[name] = path
	}
	return nil
}
