// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/modelberth/modelberth/pkg/agent/fetch"
	"github.com/modelberth/modelberth/pkg/hub"
)

// waitForOther is the interval between checks of another pod's fetch.
const waitForOther = 500 * time.Millisecond

// errOtherStalled is the obstacle if another pod holds a file and makes no progress with it.
var errOtherStalled = errors.New("another pod is fetching the file into the cache, but makes no progress")

// isCached reports whether the cache has a verified file. If so, it links the file.
func (f *Fetcher) isCached(ctx context.Context, t target) (bool, error) {
	if t.digest.IsZero() {
		return false, nil
	}
	c, key := f.config.Cache, keyOf(t.digest)
	holds, err := c.hold(key)
	if err != nil || !holds {
		return false, err
	}
	m, ok := c.volume.readMarker(blobPath(key))
	if !ok || m.Digest != t.digest {
		return false, c.letGo(key)
	}
	if sound, err := f.isSound(ctx, t, m.Size); !sound {
		return false, errors.Join(err, c.letGo(key))
	}
	return true, f.linkCached(t, key, m.Size)
}

func (f *Fetcher) linkCached(t target, key string, size int64) error {
	if err := f.volume.link(t.file.Path, filepath.Join(f.config.Cache.dir, blobPath(key))); err != nil {
		return err
	}
	f.tracker.ready(t.file.Path, size)
	f.config.Log.Info("file is in the cache", "file", t.file.Path, "bytes", size)
	return nil
}

// fetchCached returns once the file is in the cache and linked. This pod or another one may fetch it.
func (f *Fetcher) fetchCached(ctx context.Context, t target) error {
	for {
		if there, err := f.isCached(ctx, t); there || err != nil {
			return err
		}
		lock, err := f.config.Cache.lock(keyOf(t.digest), true)
		if err != nil {
			return err
		}
		if lock == nil {
			if err := f.waitForOther(ctx, t); err != nil {
				return err
			}
			continue
		}
		if err := f.fillCache(ctx, t); err != nil {
			return errors.Join(err, lock.release())
		}
		if err := f.config.Cache.noteSample(keyOf(t.digest), t.size); err != nil {
			return errors.Join(err, lock.release())
		}
		if keeps, err := f.config.Cache.keep(keyOf(t.digest), lock); !keeps {
			if err != nil {
				return storageError(t.file.Path, err)
			}
			continue
		}
		return f.linkCached(t, keyOf(t.digest), t.size)
	}
}

// fillCache completes a file while this process has the exclusive lock.
func (f *Fetcher) fillCache(ctx context.Context, t target) error {
	c, key := f.config.Cache, keyOf(t.digest)
	at := place{c.volume, blobPath(key)}
	if err := c.touch(key); err != nil {
		return err
	}
	info, exists, err := c.volume.exists(at.path)
	if err != nil {
		return err
	}
	if exists && info.Size() == t.size {
		f.tracker.set(fetch.FileProgress{Path: t.file.Path, Stage: fetch.StageVerifying, Bytes: t.size, TotalBytes: t.size})
		err := at.hash(ctx, t, f.stall.moved)
		if err == nil {
			return at.settle(t)
		}
		if !errors.As(err, new(*hub.ChecksumError)) {
			return err
		}
	}
	if exists {
		f.config.Log.Info("file in the cache is damaged, fetching it again", "file", t.file.Path)
		if err := c.remove(key); err != nil {
			return err
		}
	}
	there := c.volume.resumable(at.path, state{Size: t.size, Digest: t.digest}).sum()
	if err := c.makeRoom(key, there, t.size); err != nil {
		return err
	}
	return f.fetchTo(ctx, t, at)
}

// waitForOther waits for one interval and shows the other pod's progress. Without progress, it notes the obstacle.
func (f *Fetcher) waitForOther(ctx context.Context, t target) error {
	blob := blobPath(keyOf(t.digest))
	done := f.config.Cache.volume.resumable(blob, state{Size: t.size, Digest: t.digest}).sum()
	f.tracker.set(fetch.FileProgress{Path: t.file.Path, Stage: fetch.StageFetching, Bytes: done, TotalBytes: t.size})
	timer := f.config.Clock.NewTimer(waitForOther)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C():
	}
	if f.config.Cache.volume.resumable(blob, state{Size: t.size, Digest: t.digest}).sum() != done {
		f.stall.moved()
		return nil
	}
	f.stall.note(f.config.Cache.obstacle(keyOf(t.digest)))
	return nil
}
