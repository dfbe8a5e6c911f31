// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"github.com/modelberth/modelberth/pkg/hub"
)

// A sample of a file is the hash of blocks spread over it, the first and the last among them. It takes a
// mebibyte of reading, whatever the size of the file.
const (
	sampleSuffix = ".sample"
	sampleBlocks = 16
	sampleBytes  = 64 << 10
)

// errSpoilt is noted where a spoilt file cannot be replaced.
var errSpoilt = errors.New("the file in the cache is not what it was when it was verified, and another pod uses it: " +
	"end the pods that do, and check the volume")

// obstacle is why a pod waits for others that use a file.
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

// noteSample keeps a sample of a file that was verified a moment ago.
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

// isSound reports whether a marked file still is what it was when it was verified: by its sample, or as a
// whole where that is asked for. A file of an earlier version has no sample.
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
		f.config.Log.Warn("file in the cache is spoilt", "file", t.file.Path)
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
		f.tracker.set(FileProgress{Path: t.file.Path, Stage: StageVerifying, Bytes: size, TotalBytes: size})
		err := (place{c.volume, blobPath(key)}).hash(ctx, t, f.patience.moved)
		if errors.As(err, new(*hub.ChecksumError)) {
			return false, nil
		}
		return err == nil, err
	}
	want, _ := c.volume.readRecord(blobPath(key) + sampleSuffix)
	if len(want) != hex.EncodedLen(sha256.Size) {
		return true, nil // there is no sample: its absence proves nothing
	}
	got, err := c.sampleOf(key, size)
	return got == string(want), err
}
