// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/hub"
)

const (
	blobsDir = "blobs"
	locksDir = "locks"
	// leaveAlone is the time after its last use in which a file is safe from eviction. Its agent may be restarting, or
	// about to lock the file again.
	leaveAlone = 10 * time.Minute
)

// errNoRoom is returned if a cache cannot hold a file without evicting a file in use.
var errNoRoom = errors.New("cache: no room")

// Cache keeps files for later pods, on a volume shared by several pods. A file's name is its checksum, so two
// repositories with the same file share it. A pod holds a shared lock with that name while it reads the file. A pod
// that fetches or evicts the file holds an exclusive lock.
type Cache struct {
	dir    string
	limit  int64
	clock  clock.WithTicker
	volume *volume

	// verifiesWhole is set if each use must verify the whole file instead of a sample.
	verifiesWhole bool

	mu   sync.Mutex
	held map[string]*fileLock
	// spoilt has the files whose contents changed after their verification.
	spoilt map[string]bool
}

// OpenCache returns the cache in a directory. With a limit of 0, only the size of the volume limits it.
func OpenCache(dir string, limit int64, c clock.WithTicker) (*Cache, error) {
	root, err := openDest(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{blobsDir, locksDir} {
		if err := root.MkdirAll(name, dirMode); err != nil {
			return nil, errors.Join(err, root.Close())
		}
	}
	return &Cache{dir: dir, limit: limit, clock: c, volume: newVolume(root), held: map[string]*fileLock{}, spoilt: map[string]bool{}}, nil
}

// makeDirectory creates a directory for an engine's own files. Only the administrator deletes it.
func (c *Cache) makeDirectory(name string) error {
	if err := c.volume.root.MkdirAll(name, dirMode); err != nil {
		return errors.Join(err, c.Close())
	}
	return nil
}

// Close releases all files, and records the time of their last use.
func (c *Cache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for key, lock := range c.held {
		errs = append(errs, c.touch(key), lock.release())
	}
	clear(c.held)
	return errors.Join(append(errs, c.volume.root.Close())...)
}

func keyOf(d hub.Digest) string { return string(d.Algorithm) + "-" + d.Hex }

func blobPath(key string) string { return path.Join(blobsDir, key) }

func (c *Cache) lock(key string, alone bool) (*fileLock, error) {
	file, err := c.volume.root.OpenFile(path.Join(locksDir, key), os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, storageError(key, err)
	}
	lock, err := tryLock(file, alone)
	if err != nil {
		return nil, storageError(key, err)
	}
	return lock, nil
}

// hold takes a shared lock until the cache is closed; false if another process has an exclusive lock.
func (c *Cache) hold(key string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[key] != nil {
		return true, nil
	}
	lock, err := c.lock(key, false)
	if err != nil || lock == nil {
		return false, err
	}
	c.held[key] = lock
	return true, c.touch(key)
}

// keep turns an exclusive lock into a shared lock; false if another process took it first.
func (c *Cache) keep(key string, lock *fileLock) (bool, error) {
	shares, err := lock.share()
	if err != nil || !shares {
		return false, errors.Join(err, lock.release())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[key] = lock
	return true, nil
}

func (c *Cache) letGo(key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	lock := c.held[key]
	if lock == nil {
		return nil
	}
	delete(c.held, key)
	return lock.release()
}

func (c *Cache) touch(key string) error {
	now := c.clock.Now()
	if err := c.volume.root.Chtimes(path.Join(locksDir, key), now, now); err != nil {
		return storageError(key, err)
	}
	return nil
}

// entry is a whole or partial file in the cache.
type entry struct {
	key  string
	size int64
	used time.Time
}

// makeRoom evicts the least recently used files until a partial file has room for its full size.
func (c *Cache) makeRoom(key string, there, size int64) error {
	entries, err := c.entries()
	if err != nil {
		return err
	}
	if at := slices.IndexFunc(entries, func(e entry) bool { return e.key == key }); at >= 0 {
		entries = slices.Delete(entries, at, at+1)
	}
	for need := size - there; ; {
		room, err := c.room(entries, there)
		if err != nil || need <= room {
			return err
		}
		if len(entries) == 0 {
			return errNoRoom
		}
		if entries, err = c.evictOne(entries); err != nil {
			return err
		}
	}
}

func (c *Cache) room(entries []entry, there int64) (int64, error) {
	free, err := c.volume.free()
	if err != nil || c.limit == 0 {
		return free, err
	}
	left := c.limit - there
	for _, e := range entries {
		left -= e.size
	}
	return min(left, free), nil
}

// evictOne removes the first unused file, and returns the others.
func (c *Cache) evictOne(entries []entry) ([]entry, error) {
	for i, e := range entries {
		if c.clock.Since(e.used) < leaveAlone {
			continue
		}
		lock, err := c.lock(e.key, true)
		if err != nil {
			return nil, err
		}
		if lock == nil {
			continue
		}
		err = errors.Join(c.remove(e.key), lock.release())
		return slices.Delete(entries, i, i+1), err
	}
	return nil, errNoRoom
}

func (c *Cache) remove(key string) error {
	blob := blobPath(key)
	return errors.Join(
		c.volume.remove(blob+markerSuffix), c.volume.remove(blob+sampleSuffix), c.volume.remove(blob), c.volume.discard(blob))
}

// entries returns all files, the least recently used first. A partial file counts with its full size.
func (c *Cache) entries() ([]entry, error) {
	list, err := fs.ReadDir(c.volume.root.FS(), blobsDir)
	if err != nil {
		return nil, storageError(blobsDir, err)
	}
	sizes := map[string]int64{}
	for _, item := range list {
		key, _, _ := strings.Cut(item.Name(), ".")
		sizes[key] = max(sizes[key], c.sizeOf(item))
	}
	var out []entry
	for key, size := range sizes {
		e := entry{key: key, size: size}
		if info, err := c.volume.root.Stat(path.Join(locksDir, key)); err == nil {
			e.used = info.ModTime()
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b entry) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.key, b.key)) })
	return out, nil
}

func (c *Cache) sizeOf(item fs.DirEntry) int64 {
	name := path.Join(blobsDir, item.Name())
	if strings.HasSuffix(name, stateSuffix) {
		if data, err := c.volume.readRecord(name); err == nil {
			if s, err := decodeState(data); err == nil {
				return s.Size
			}
		}
	}
	info, err := item.Info()
	if err != nil {
		return 0 // evicted meanwhile
	}
	return info.Size()
}
