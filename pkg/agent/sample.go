// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"github.com/modelberth/modelberth/pkg/agent/fetch"
	"github.com/modelberth/modelberth/pkg/hub"
)

// A sample of a file is the hash of blocks spread over the file, including the first and the last. A sample reads 1
// MiB, regardless of the file's size.
const (
	sampleSuffix = ".sample"
	sampleBlocks = 16
	sampleBytes  = 64 << 10
)

// errSpoilt is recorded if a damaged file cannot be replaced.
var errSpoilt = errors.New("the cached file has changed since its verification, but another pod uses the file: " +
	"delete the pods that use the file, and check the volume")

// obstacle returns the reason why a pod waits for other users of a file.
func (c *Cache) obstacle(key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spoilt[key] {
		return errSpoilt
	}
	return errOtherStalled
}

// sampleOf reads a sample of a file in the cache.
func (c *Cache) sampleOf(key string, size int64) (string, error) {
	file, err := c.volume.root.Open(blobPath(key))
	if err != nil {
		return "", storageError(key, err)
	}
	defer func() { _ = file.Close() }()
	h := sha256.New()
	if size <= sampleBlocks*sampleBytes {
		_, err = io.Copy(h, io.NewSectionReader(file, 0, size))
	}
	buf := make([]byte, sampleBytes)
	for i := int64(0); i < sampleBlocks && size > sampleBlocks*sampleBytes && err == nil; i++ {
		_, err = hashSome(h, file, i*(size-sampleBytes)/(sampleBlocks-1), sampleBytes, buf)
	}
	if err != nil {
		return "", storageError(key, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// noteSample stores a sample of a file right after its verification.
func (c *Cache) noteSample(key string, size int64) error {
	sample, err := c.sampleOf(key, size)
	if err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.spoilt, key)
	c.mu.Unlock()
	return c.volume.writeRecord(blobPath(key)+sampleSuffix, []byte(sample))
}

// isSound reports whether a marked file is unchanged since its verification: by its sample, or as a whole if
// required. Files of earlier versions have no sample.
func (f *Fetcher) isSound(ctx context.Context, t target, size int64) (bool, error) {
	c, key := f.config.Cache, keyOf(t.digest)
	c.mu.Lock()
	spoilt := c.spoilt[key]
	c.mu.Unlock()
	if spoilt {
		return false, nil
	}
	sound, err := f.compare(ctx, t, size)
	if err == nil && !sound {
		f.config.Log.Warn("file in the cache is damaged", "file", t.file.Path)
		c.mu.Lock()
		c.spoilt[key] = true
		c.mu.Unlock()
	}
	return sound, err
}

func (f *Fetcher) compare(ctx context.Context, t target, size int64) (bool, error) {
	c, key := f.config.Cache, keyOf(t.digest)
	if c.verifiesWhole {
		t.size = size
		f.tracker.set(fetch.FileProgress{Path: t.file.Path, Stage: fetch.StageVerifying, Bytes: size, TotalBytes: size})
		err := (place{c.volume, blobPath(key)}).hash(ctx, t, f.stall.moved)
		if errors.As(err, new(*hub.ChecksumError)) {
			return false, nil
		}
		return err == nil, err
	}
	want, _ := c.volume.readRecord(blobPath(key) + sampleSuffix)
	if len(want) != hex.EncodedLen(sha256.Size) {
		return true, nil // without a sample, there is nothing to compare
	}
	got, err := c.sampleOf(key, size)
	return got == string(want), err
}
