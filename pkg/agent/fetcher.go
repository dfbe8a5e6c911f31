// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/agent/fetch"
	"github.com/modelberth/modelberth/pkg/hub"
)

// filesAtOnce bounds the number of files in progress. They share the connections.
const filesAtOnce = 4

// Hub has the methods of a hub for a fetch.
type Hub interface {
	Resolve(ctx context.Context, repo, revision string) (string, error)
	Stat(ctx context.Context, f hub.File) (hub.Metadata, error)
	Tree(ctx context.Context, repo, revision string) ([]hub.Entry, error)
	Open(ctx context.Context, f hub.File, r hub.Range) (io.ReadCloser, error)
}

// Config has the inputs of a Fetcher.
type Config struct {
	Hub Hub
	// Root is the volume's directory.
	Root  *os.Root
	Clock clock.WithTicker
	Log   *slog.Logger

	Repo, Revision string
	// Files are paths within the repository, checked by CheckPath. If there are none, Selection selects the files.
	Files     []string
	Selection Selection
	// SHA256 overrides the hub's checksums of some files.
	SHA256 map[string]hub.Digest
	// Cache is shared with other pods; nil for none.
	Cache *Cache
	// Connections bounds the requests in flight at once.
	Connections int
	// GiveUpAfter is the longest time without progress.
	GiveUpAfter time.Duration
	// Most is the largest size of the files together; 0 means no limit.
	Most int64
}

// Fetcher fetches the files of one repository onto one volume.
type Fetcher struct {
	config      Config
	volume      *volume
	tracker     *tracker
	stall       *stallDetector
	connections chan struct{}
	unsettled   *unsettled
}

// New returns a Fetcher. Run starts it.
func New(c Config) *Fetcher {
	return &Fetcher{
		config:      c,
		volume:      newVolume(c.Root),
		tracker:     newTracker(c.Clock, c.Files),
		stall:       newStallDetector(c.Clock, c.GiveUpAfter),
		connections: make(chan struct{}, c.Connections),
		unsettled:   new(unsettled),
	}
}

// Progress returns the progress of the fetch. It is safe to call at any time.
func (f *Fetcher) Progress() fetch.Progress {
	p := f.tracker.snapshot()
	if err := f.stall.lastError(); err != nil && !p.Ready {
		p.LastError = err.Error()
	}
	return p
}

// Run returns once all files are verified and have their final names, or with a permanent error. After an error, the
// fetched bytes stay, and the next Run resumes there. Call Settle afterwards.
func (f *Fetcher) Run(ctx context.Context) error { return f.stall.guard(ctx, f.run) }

func (f *Fetcher) run(ctx context.Context) error {
	wants, listed, err := f.wants(ctx)
	if err != nil {
		return err
	}
	if wants, err = f.lacking(ctx, wants); err != nil {
		return err
	}
	targets, err := f.lookUp(ctx, wants, listed)
	if err != nil {
		return err
	}
	if targets, err = f.unknown(ctx, targets); err != nil {
		return err
	}
	if err := errors.Join(f.checkLimit(targets), f.checkSpace(targets)); err != nil {
		return err
	}
	return f.fetchAll(ctx, targets)
}

// wants returns the named files, or else the selected files from the hub's list, with the list.
func (f *Fetcher) wants(ctx context.Context) ([]want, *listing, error) {
	if len(f.config.Files) == 0 {
		listed, err := f.list(ctx)
		if err != nil {
			return nil, nil, err
		}
		wants := listed.wants()
		f.tracker.expect(wants)
		return wants, listed, nil
	}
	var out []want
	for _, p := range f.config.Files {
		file := hub.File{Repo: f.config.Repo, Revision: f.config.Revision, Path: p}
		out = append(out, want{file: file, given: f.config.SHA256[p]})
	}
	return out, nil, nil
}

// lacking returns the files that are missing from the volume, as far as this is visible without the hub. So a restart
// does not need the hub.
func (f *Fetcher) lacking(ctx context.Context, wants []want) ([]want, error) {
	var out []want
	for _, w := range wants {
		there, err := f.isThere(ctx, target{want: w, digest: w.given})
		if err != nil {
			return nil, err
		}
		if !there {
			out = append(out, w)
		}
	}
	return out, nil
}

// unknown is the second check of the volume, with the hub's description of each file. It returns the files to fetch.
func (f *Fetcher) unknown(ctx context.Context, targets []target) ([]target, error) {
	var out []target
	for _, t := range targets {
		there, err := f.isThere(ctx, t)
		if err != nil {
			return nil, err
		}
		if !there {
			f.tracker.set(fetch.FileProgress{Path: t.file.Path, Stage: fetch.StageWaiting, TotalBytes: t.size})
			out = append(out, t)
		}
	}
	return out, nil
}

// isThere reports whether an earlier run has fetched a file. It removes a file with wrong contents at once.
func (f *Fetcher) isThere(ctx context.Context, t target) (bool, error) {
	path := t.file.Path
	if f.config.Cache != nil {
		if there, err := f.isCached(ctx, t); there || err != nil {
			return there, err
		}
	}
	if m, ok := f.volume.readMarker(path); ok && m.answers(t.want) {
		f.tracker.ready(path, m.Size)
		f.config.Log.Info("file was verified before", "file", path, "bytes", m.Size)
		return true, nil
	}
	if f.volume.isLink(path) {
		return false, nil // the target was evicted, or is another file of the cache
	}
	info, exists, err := f.volume.exists(path)
	if err != nil || !exists || t.digest.IsZero() {
		return false, err
	}
	t.size = info.Size()
	f.tracker.set(fetch.FileProgress{Path: path, Stage: fetch.StageVerifying, Bytes: info.Size(), TotalBytes: info.Size()})
	err = (place{f.volume, path}).hash(ctx, t, f.stall.moved)
	if errors.As(err, new(*hub.ChecksumError)) {
		f.config.Log.Info("file on the volume does not match its checksum, fetching it again", "file", path)
		return false, errors.Join(f.volume.remove(path), f.volume.remove(path+markerSuffix))
	}
	if err != nil {
		return false, err
	}
	if err := f.volume.writeMarker(path, t); err != nil {
		return false, err
	}
	f.tracker.ready(path, info.Size())
	f.config.Log.Info("verified an existing file", "file", path, "bytes", info.Size())
	return true, nil
}

// checkLimit fails before the first byte if the files are larger than allowed.
func (f *Fetcher) checkLimit(targets []target) error {
	var need int64
	for _, t := range targets {
		need += t.size
	}
	if f.config.Most > 0 && need > f.config.Most {
		return &TooLargeError{Need: need, Most: f.config.Most}
	}
	return nil
}

// TooLargeError is returned if files are larger than allowed.
type TooLargeError struct{ Need, Most int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the files have %d bytes, and %d are allowed", e.Need, e.Most)
}

// checkSpace fails before the first byte if the files do not fit.
func (f *Fetcher) checkSpace(targets []target) error {
	if f.config.Cache != nil {
		return nil // the cache makes room for each file
	}
	var need int64
	for _, t := range targets {
		done := f.volume.resumable(t.file.Path, state{Size: t.size, Digest: t.digest})
		need += t.size - done.sum()
	}
	free, err := f.volume.free()
	if err != nil {
		return storageError(".", err)
	}
	if need > free {
		return &DiskFullError{Path: targets[0].file.Path, Need: need, Free: free}
	}
	return nil
}

func (f *Fetcher) fetchAll(ctx context.Context, targets []target) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(filesAtOnce)
	for _, t := range targets {
		g.Go(func() error { return f.fetch(ctx, t) })
	}
	return g.Wait()
}

// fetch brings one file into place.
func (f *Fetcher) fetch(ctx context.Context, t target) error {
	own := place{f.volume, t.file.Path}
	if f.config.Cache != nil {
		err := f.fetchCached(ctx, t)
		if !errors.Is(err, errNoRoom) {
			return err
		}
		f.config.Log.Warn("the cache is full, fetching the file without the cache", "file", t.file.Path, "bytes", t.size)
	}
	if err := f.fetchTo(ctx, t, own); err != nil {
		return err
	}
	f.tracker.ready(t.file.Path, t.size)
	return nil
}
