// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/modelberth/modelberth/pkg/hub"
)

// listing is the result of a selection at one commit. The volume keeps it, so that a restart needs no hub, and files of
// different commits never mix.
type listing struct {
	Version   int          `json:"version"`
	Repo      string       `json:"repo"`
	Revision  string       `json:"revision"`
	Selection Selection    `json:"selection"`
	Commit    string       `json:"commit"`
	Files     []listedFile `json:"files"`
}

type listedFile struct {
	Path   string     `json:"path"`
	Size   int64      `json:"size"`
	Digest hub.Digest `json:"digest,omitzero"`
}

const (
	listingVersion = 1
	// listingName is the listing's name on the volume.
	listingName = ".modelberth-listing"
	// maxListed bounds the number of files. The largest models have a few hundred.
	maxListed = 2048
)

// list returns the files to fetch. It queries the hub only if no earlier run stored a listing.
func (f *Fetcher) list(ctx context.Context) (*listing, error) {
	if l, ok := f.readListing(); ok {
		f.config.Log.Info("files were listed before", "files", len(l.Files), "commit", l.Commit)
		return l, nil
	}
	commit, err := f.commit(ctx)
	if err != nil {
		return nil, err
	}
	tree, err := persist(ctx, f.stall, func() ([]hub.Entry, error) {
		return f.config.Hub.Tree(ctx, f.config.Repo, commit)
	})
	if err != nil {
		return nil, err
	}
	l := f.newListing(commit)
	if l.Files, err = f.selectFiles(tree); err != nil {
		return nil, err
	}
	data, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("encoding the list of files: %w", err)
	}
	f.config.Log.Info("files are listed", "files", len(l.Files), "commit", commit)
	return l, f.volume.writeRecord(listingName, data)
}

func (f *Fetcher) newListing(commit string) *listing {
	return &listing{
		Version: listingVersion, Repo: f.config.Repo, Revision: f.config.Revision, Selection: f.config.Selection, Commit: commit,
	}
}

// readListing returns the stored listing of an earlier run for the same repository, revision and selection.
func (f *Fetcher) readListing() (*listing, bool) {
	var l listing
	data, err := f.volume.readRecord(listingName)
	if err != nil || decodeStrict(data, &l) != nil {
		return nil, false
	}
	same := f.newListing(l.Commit)
	same.Files = l.Files
	if !reflect.DeepEqual(*same, l) || !isPinned(l.Commit) || len(l.Files) == 0 {
		return nil, false
	}
	if slices.ContainsFunc(l.Files, func(file listedFile) bool { return CheckPath(file.Path) != nil }) {
		return nil, false
	}
	return &l, true
}

// selectFiles returns the selected files of a tree, the largest first, because they take longest.
func (f *Fetcher) selectFiles(tree []hub.Entry) ([]listedFile, error) {
	s := f.config.Selection
	weights := 0
	var files []listedFile
	for _, e := range tree {
		isWeights := matches(s.Weights, e.Path)
		if (!isWeights && !matches(s.Include, e.Path)) || matches(s.Exclude, e.Path) {
			continue
		}
		if err := CheckPath(e.Path); err != nil {
			return nil, fmt.Errorf("the hub lists a file that cannot be stored: %w", err)
		}
		if given, is := f.config.SHA256[e.Path]; is && !e.Digest.IsZero() && e.Digest != given {
			return nil, &OtherFileError{Path: e.Path, Want: given, Got: e.Digest.Hex}
		}
		if isWeights {
			weights++
		}
		files = append(files, listedFile{Path: e.Path, Size: e.Size, Digest: e.Digest})
	}
	if weights == 0 {
		missing := hub.File{Repo: f.config.Repo, Revision: f.config.Revision, Path: s.Weights[0]}
		return nil, &hub.NotFoundError{File: missing, Missing: "file"}
	}
	if len(files) > maxListed {
		return nil, fmt.Errorf("the hub lists %d matching files: at most %d are allowed", len(files), maxListed)
	}
	slices.SortFunc(files, func(a, b listedFile) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Path, b.Path))
	})
	return files, nil
}

// has reports whether a file is listed; false without a listing.
func (l *listing) has(file string) bool {
	return l != nil && slices.ContainsFunc(l.Files, func(f listedFile) bool { return f.Path == file })
}

// wants returns the listed files, with the checksums of the tree.
func (l *listing) wants() []want {
	out := make([]want, 0, len(l.Files))
	for _, file := range l.Files {
		out = append(out, want{file: hub.File{Repo: l.Repo, Revision: l.Revision, Path: file.Path}, given: file.Digest})
	}
	return out
}

// target returns a wanted file with the tree's data about it.
func (l *listing) target(w want) target {
	t := target{want: w, commit: l.Commit, size: -1, digest: w.given}
	at := slices.IndexFunc(l.Files, func(file listedFile) bool { return file.Path == w.file.Path })
	if at >= 0 {
		t.size = l.Files[at].Size
	}
	return t
}
