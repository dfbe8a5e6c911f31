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
	// leaveAlone protects what was used a moment ago: by an agent that is being restarted beside its engine, or
	// by one that is about to take its lock again.
	leaveAlone = 10 * time.Minute
)

// errNoRoom says that a cache cannot take a file without losing what is in use.
var errNoRoom = errors.New("cache: no room")

// Cache keeps files for pods to come, on a volume that several pods share. A file lies under its checksum, so that
// two repositories with the same file have it once. Who uses a file shares the lock of that name, who fetches or
// evicts it has the lock alone.
type Cache struct {
	dir    string
	limit  int64
	clock  clock.WithTicker
	volume *volume

	// verifiesWhole is set where a sample of a file is not enough.
	verifiesWhole bool

	mu   sync.Mutex
	held map[string]*fileLock
	// spoilt are files that are not what they were when they were verified.
	spoilt map[string]bool
}

// OpenCache returns the cache in a directory. A limit of 0 leaves only the size of the volume.
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

// makeDirectory makes room for an engine's own files, which nobody but the administrator deletes.
func (c *Cache) makeDirectory(name string) error {
	if err := c.volume.root.MkdirAll(name, dirMode); err != nil {
		return errors.Join(err, c.Close())
	}
	return nil
}

// Close lets go of all files, and notes that they were in use until now.
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

// hold takes a shared lock for as long as the cache is open; false where somebody has the file alone.
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

// keep holds on to a file that was had alone; false where somebody else was faster.
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

// entry is a file in the cache, or what there is of it.
type entry struct {
	key  string
	size int64
	used time.Time
}

// makeRoom evicts what was not used for longest until a file of which some bytes are there fits as a whole.
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

// evictOne takes the first away that nobody uses, and returns the others.
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

// entries returns all files, the one that was not used for longest first. What is half fetched counts as a whole.
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
		return 0 // gone meanwhile
	}
	return info.Size()
}
