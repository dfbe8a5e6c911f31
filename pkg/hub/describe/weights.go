// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/modelberth/modelberth/pkg/hub"
	"github.com/modelberth/modelberth/pkg/jsonstream"
	"github.com/modelberth/modelberth/pkg/model/hfconfig"
)

const (
	// maxHeader bounds the header of a safetensors file. Published headers have about 100 KiB.
	maxHeader = 4 << 20
	// maxHeaders bounds the number of indexes and headers that are read at once.
	maxHeaders = 2
	// maxShards bounds the number of files whose headers are read one by one.
	maxShards = 256
	// maxTensors bounds the claimed size of a file's tensors.
	maxTensors = 1 << 43
)

// weights sums up the tensors that vLLM would load. It reads the repository's index or the headers of the safetensors
// files. The sum is zero if both are missing.
func (c inspector) weights(ctx context.Context, at hub.File) (hfconfig.Tensors, error) {
	if err := c.headers.Acquire(ctx, 1); err != nil {
		return hfconfig.Tensors{}, fmt.Errorf("waiting for other queries to the hub: %w", context.Cause(ctx))
	}
	defer c.headers.Release(1)
	found, err := c.index(ctx, at)
	switch {
	case err == nil && found.Bytes > 0:
		return found, nil
	case err == nil:
		return c.shards(ctx, at)
	case !isMissing(err):
		return hfconfig.Tensors{}, err
	}
	found = hfconfig.Tensors{}
	at.Path = "model.safetensors"
	if err := c.addFile(ctx, at, &found); !isMissing(err) {
		return found, err
	}
	return c.shards(ctx, at)
}

func (c inspector) index(ctx context.Context, at hub.File) (found hfconfig.Tensors, err error) {
	at.Path = "model.safetensors.index.json"
	_, err = c.Stream(ctx, at, maxIndex, func(r io.Reader) error {
		found, err = hfconfig.ReadIndex(r)
		return err
	})
	return found, err
}

// shards sums up vLLM's files: safetensors at the root, but not those of other formats.
func (c inspector) shards(ctx context.Context, at hub.File) (hfconfig.Tensors, error) {
	var files []string
	err := c.EachFile(ctx, at.Repo, at.Revision, func(e hub.Entry) {
		if isShard(e.Path) && len(files) <= maxShards {
			files = append(files, e.Path)
		}
	})
	var found hfconfig.Tensors
	switch {
	case err != nil && (isMissing(err) || hub.LacksAPI(err)), len(files) > maxShards:
		return found, nil
	case err != nil:
		return found, err
	}
	for _, at.Path = range files {
		if err := c.addFile(ctx, at, &found); err != nil {
			return hfconfig.Tensors{}, err
		}
	}
	return found, nil
}

func isShard(path string) bool {
	isOther := strings.HasPrefix(path, "consolidated") || strings.HasPrefix(path, "adapter_model")
	return !strings.Contains(path, "/") && !isOther && strings.HasSuffix(path, ".safetensors")
}

// addFile adds the tensors of one safetensors file. It reads only the header: 8 bytes with its length, and JSON
// with the place of each tensor.
func (c inspector) addFile(ctx context.Context, at hub.File, to *hfconfig.Tensors) error {
	start, err := c.ReadStart(ctx, at, 8)
	if err != nil {
		return err
	}
	length := binary.LittleEndian.Uint64(start)
	switch {
	case length < 2 || length > maxTensors:
		return c.malformed(at, fmt.Errorf("not a safetensors file: its header would have %d bytes", length))
	case length > maxHeader:
		return &hub.TooLargeError{File: at, What: "header", Limit: maxHeader}
	}
	// This starts at byte 0 again, because a server may ignore the start of a range.
	return c.StreamStart(ctx, at, 8+int64(length), func(r io.Reader) error {
		if _, err := io.CopyN(io.Discard, r, 8); err != nil {
			return err
		}
		if err := addHeader(r, to); err != nil {
			return c.malformed(at, err)
		}
		return nil
	})
}

// malformed returns the error for an answer other than the requested file, such as from a damaged mirror or a portal. A
// later query may succeed.
func (c inspector) malformed(f hub.File, err error) error {
	return &hub.MalformedError{Endpoint: c.Endpoint(), File: f, Err: err}
}

// addHeader adds the tensors of a header. It holds one tensor's entry at a time, to save memory.
func addHeader(r io.Reader, to *hfconfig.Tensors) error {
	d := jsonstream.New(r)
	err := d.Object(func(name string) error {
		if name == "__metadata__" {
			return d.Skip()
		}
		var tensor struct {
			Offsets []int64 `json:"data_offsets"`
		}
		if err := d.Value(&tensor); err != nil {
			return err
		}
		if len(tensor.Offsets) != 2 {
			return &tensorError{name, "lacks its two data_offsets"}
		}
		from, end := tensor.Offsets[0], tensor.Offsets[1]
		if from < 0 || end < from || end-from > maxTensors-to.Bytes {
			return &tensorError{name, fmt.Sprintf("extends from byte %d to %d", from, end)}
		}
		to.Bytes += end - from
		to.Add(name)
		return nil
	})
	if err == nil {
		err = d.End()
	}
	if _, ofTensor := errors.AsType[*tensorError](err); err != nil && !ofTensor {
		return fmt.Errorf("not a safetensors file: its header is not JSON: %w", err)
	}
	return err
}

// tensorError reports a tensor that is too large for any file.
type tensorError struct{ name, problem string }

func (e *tensorError) Error() string { return fmt.Sprintf("tensor %.100q %s", e.name, e.problem) }
