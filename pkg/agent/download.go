// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/modelberth/modelberth/pkg/agent/fetch"
	"github.com/modelberth/modelberth/pkg/hub"
)

// pieceBytes returns the bytes of one request. Requests are long enough to fetch any file in a few hundred, because
// hubs limit the number of requests. They are short enough to use all connections for a small file.
func pieceBytes(size int64) int64 { return min(max(size/256, 16<<20), 256<<20) }

// place is the path of a file on the volume or in the cache.
type place struct {
	volume *volume
	path   string
}

// fetchTo fetches a file. If the hash is wrong, it discards the bytes and fetches them once more, because a proxy may
// have altered them.
func (f *Fetcher) fetchTo(ctx context.Context, t target, to place) error {
	err := f.fetchOnce(ctx, t, to)
	if !errors.As(err, new(*hub.ChecksumError)) {
		return err
	}
	f.config.Log.Warn("checksum differs, fetching the file again", "file", t.file.Path, "err", err)
	return f.fetchOnce(ctx, t, to)
}

func (f *Fetcher) fetchOnce(ctx context.Context, t target, to place) (err error) {
	p, err := to.volume.openPartial(to.path, state{Size: t.size, Digest: t.digest})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	there := p.done().sum()
	f.tracker.set(fetch.FileProgress{Path: t.file.Path, Stage: fetch.StageFetching, Bytes: there, TotalBytes: t.size})
	f.config.Log.Info("fetching file", "file", t.file.Path, "commit", t.commit, "bytes", t.size, "resumedAt", there)

	if err := f.fill(ctx, p, t); err != nil {
		return f.keepOrDiscard(p, err)
	}
	if err := to.volume.publish(to.path); err != nil {
		return err
	}
	f.unsettled.add(t, to)
	f.config.Log.Info("file is verified", "file", t.file.Path, "bytes", t.size)
	return to.volume.remove(to.path + stateSuffix)
}

// fill downloads the missing ranges and hashes them on the way.
func (f *Fetcher) fill(ctx context.Context, p *partial, t target) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.follow(ctx, t.file, f.stall.moved) })
	g.Go(func() error { return f.download(ctx, p, t) })
	return g.Wait()
}

// keepOrDiscard keeps the fetched bytes for the next attempt, or discards them if their checksum is wrong.
func (f *Fetcher) keepOrDiscard(p *partial, err error) error {
	if errors.As(err, new(*hub.ChecksumError)) {
		return errors.Join(err, p.volume.discard(p.path))
	}
	if saveErr := p.checkpoint(); saveErr != nil {
		f.config.Log.Warn("progress could not be saved", "file", p.path, "err", saveErr)
	}
	return err
}

func (f *Fetcher) download(ctx context.Context, p *partial, t target) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, r := range p.done().missing(t.size, pieceBytes(t.size)) {
		select {
		case f.connections <- struct{}{}:
		case <-ctx.Done():
			if err := g.Wait(); err != nil {
				return err
			}
			return context.Cause(ctx)
		}
		g.Go(func() error {
			defer func() { <-f.connections }()
			return f.fetchPiece(ctx, p, t, r)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	f.tracker.stage(t.file.Path, fetch.StageVerifying)
	return nil
}

// fetchPiece fetches a range. It resumes after broken connections until the stall detector of all downloads stops it.
func (f *Fetcher) fetchPiece(ctx context.Context, p *partial, t target, r hub.Range) error {
	pauses := f.stall.pause()
	buf := make([]byte, bufferBytes)
	for {
		n, err := f.copyRange(ctx, p, t, r, buf)
		if err == nil {
			return nil
		}
		if r.Start += n; n > 0 {
			pauses.Reset()
		}
		if err := f.stall.wait(ctx, err, pauses.NextBackOff()); err != nil {
			return err
		}
	}
}

func (f *Fetcher) copyRange(ctx context.Context, p *partial, t target, r hub.Range, buf []byte) (int64, error) {
	body, err := f.config.Hub.Open(ctx, t.pinned(), r)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	var copied int64
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if err := p.write(buf[:n], r.Start+copied); err != nil {
				return copied, err
			}
			copied += int64(n)
			f.tracker.received(t.file.Path, int64(n))
			f.stall.moved()
		}
		if errors.Is(err, io.EOF) {
			return copied, nil
		}
		if err != nil {
			return copied, err
		}
	}
}
