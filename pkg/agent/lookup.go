// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/modelberth/modelberth/pkg/hub"
)

// lookUp gets all inputs of a fetch from the hub. It requests the commit once, so that all files have the same one, and
// then the description of each file. It does not request data that the listing has.
func (f *Fetcher) lookUp(ctx context.Context, wants []want, listed *listing) ([]target, error) {
	if len(wants) == 0 {
		return nil, nil
	}
	if listed != nil {
		return f.lookUpListed(ctx, wants, listed)
	}
	commit, err := f.commit(ctx)
	if err != nil {
		return nil, err
	}
	return f.describeAll(ctx, wants, commit)
}

// lookUpListed queries the hub about files with incomplete data in the listing.
func (f *Fetcher) lookUpListed(ctx context.Context, wants []want, listed *listing) ([]target, error) {
	var targets []target
	var vague []want
	for _, w := range wants {
		if t := listed.target(w); t.isVague() {
			vague = append(vague, w)
		} else {
			targets = append(targets, t)
		}
	}
	if len(vague) == 0 {
		return targets, nil
	}
	described, err := f.describeAll(ctx, vague, listed.Commit)
	return append(targets, described...), err
}

func (f *Fetcher) describeAll(ctx context.Context, wants []want, commit string) ([]target, error) {
	targets := make([]target, len(wants))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(f.config.Connections)
	for i, w := range wants {
		g.Go(func() (err error) {
			targets[i], err = f.describe(gctx, w, commit)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return targets, f.completeFromTree(ctx, commit, targets)
}

func (f *Fetcher) describe(ctx context.Context, w want, commit string) (target, error) {
	t := target{want: w, commit: commit, digest: w.given}
	m, err := persist(ctx, f.stall, func() (hub.Metadata, error) {
		return f.config.Hub.Stat(ctx, t.pinned())
	})
	if err != nil {
		return t, err
	}
	t.size = m.Size
	if t.digest.IsZero() {
		t.digest = m.SHA256
	}
	return t, nil
}

// completeFromTree adds data that the answers about files lack. The checksums of small files are only in the tree, and
// some mirrors omit headers.
func (f *Fetcher) completeFromTree(ctx context.Context, commit string, targets []target) error {
	if !slices.ContainsFunc(targets, target.isVague) {
		return nil
	}
	tree, err := persist(ctx, f.stall, func() ([]hub.Entry, error) {
		return f.config.Hub.Tree(ctx, f.config.Repo, commit)
	})
	// The answers of a mirror without the tree's route may still suffice.
	if err != nil && !errors.As(err, new(*hub.NotFoundError)) {
		return err
	}
	for i := range targets {
		t := &targets[i]
		at := slices.IndexFunc(tree, func(e hub.Entry) bool { return e.Path == t.file.Path })
		if at >= 0 && t.digest.IsZero() {
			t.digest = tree[at].Digest
		}
		if at >= 0 && t.size < 0 {
			t.size = tree[at].Size
		}
		if t.digest.IsZero() {
			return &UnverifiableError{File: t.file, Lacks: "checksum"}
		}
		if t.size < 0 {
			return &UnverifiableError{File: t.file, Lacks: "size"}
		}
	}
	return nil
}

// UnverifiableError is returned if the hub does not state a file's checksum or size.
type UnverifiableError struct {
	File  hub.File
	Lacks string
}

func (e *UnverifiableError) Error() string {
	return fmt.Sprintf("the hub states no %s for %s", e.Lacks, e.File)
}
