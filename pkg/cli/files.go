// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// mostBytes limits the size of a file: many times the API server's limit for an object.
const mostBytes = 8 << 20

// readFile reads a file; - is the standard input.
func readFile(name string, stdin io.Reader) ([]byte, error) {
	from := stdin
	if name != "-" || stdin == nil {
		file, err := os.Open(name)
		if err != nil {
			return nil, plainly(name, err)
		}
		defer func() { _ = file.Close() }() // it was read only
		from = file
	}
	data, err := io.ReadAll(io.LimitReader(from, mostBytes+1))
	if err != nil {
		return nil, plainly(name, err)
	}
	if len(data) > mostBytes {
		return nil, fmt.Errorf("%q is larger than %d MiB: too large for a manifest", name, mostBytes>>20)
	}
	return data, nil
}

// plainly explains why a file cannot be read.
func plainly(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no file %q", name)
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	return fmt.Errorf("%q cannot be read: %w", name, err)
}
