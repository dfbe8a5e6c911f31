// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"hash"
	"io"

	"github.com/modelberth/modelberth/pkg/hub"
)

// bufferBytes is the largest read from the network or the disk.
const bufferBytes = 1 << 20

// follow hashes a file during its fetch, always up to the first gap. At that time the bytes are still in memory, and
// little is left to hash after the last byte.
func (p *partial) follow(ctx context.Context, f hub.File, moved func()) error {
	h := p.state.Digest.NewHash(p.state.Size)
	buf := make([]byte, bufferBytes)
	at := int64(0)
	for at < p.state.Size {
		prefix := p.done().prefix()
		if at == prefix {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-p.grown:
			}
			continue
		}
		n, err := hashSome(h, p.file, at, min(prefix-at, bufferBytes), buf)
		if err != nil {
			return storageError(p.path, err)
		}
		at += n
		moved()
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
	return p.state.Digest.Check(f, h)
}

func hashSome(h hash.Hash, from io.ReaderAt, at, n int64, buf []byte) (int64, error) {
	read, err := from.ReadAt(buf[:n], at)
	if int64(read) < n {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, err
	}
	h.Write(buf[:n])
	return n, nil
}

// hash checks a whole existing file.
func (at place) hash(ctx context.Context, t target, moved func()) error {
	file, err := at.volume.root.Open(at.path)
	if err != nil {
		return storageError(at.path, err)
	}
	defer func() { _ = file.Close() }()
	h := t.digest.NewHash(t.size)
	buf := make([]byte, bufferBytes)
	for done := int64(0); done < t.size; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n, err := hashSome(h, file, done, min(t.size-done, bufferBytes), buf)
		if err != nil {
			return storageError(at.path, err)
		}
		done += n
		moved()
	}
	return t.digest.Check(t.file, h)
}
