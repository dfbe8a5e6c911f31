// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync/atomic"

	"github.com/modelberth/modelberth/pkg/agent/fetch"
	"github.com/modelberth/modelberth/pkg/agent/oci"
	"github.com/modelberth/modelberth/pkg/hub"
)

// files returns the files to request by name. An artifact has none, because a file may be in an archive.
func (t Target) files() []string {
	if t.Image != "" {
		return nil
	}
	return t.Files
}

// selection selects an artifact's layers: the wanted files, and all archives, because they may contain wanted files.
func (t Target) selection() Selection {
	s := t.Selection
	if t.Image == "" || t.wantsEverything() {
		return s
	}
	s.Weights = slices.Clone(s.Weights)
	for _, file := range t.Files {
		s.Weights = append(s.Weights, literalPattern(file))
	}
	s.Weights = append(s.Weights, oci.Archives)
	return s
}

func (t Target) wantsEverything() bool { return slices.Equal(t.Selection.Weights, everything()) }

// OtherFileError is returned if an artifact has another file under the expected name.
type OtherFileError struct {
	Path string
	Want hub.Digest
	Got  string
}

func (e *OtherFileError) Error() string {
	return fmt.Sprintf("artifact: %q is %s, want %s", e.Path, e.Got, e.Want.Hex)
}

// unpacking fetches an artifact, unpacks its archives, and checks that all wanted files are there.
type unpacking struct {
	*Fetcher
	dir    string
	wanted Target
	limits oci.Limits
	isDone atomic.Bool
}

// Run is safe to repeat after any failure.
func (u *unpacking) Run(ctx context.Context) error {
	if err := u.Fetcher.Run(ctx); err != nil {
		return err
	}
	err := oci.Unpack(u.config.Root, u.dir, u.limits)
	if _, isTooLarge := errors.AsType[*oci.LimitError](err); isTooLarge {
		return err
	}
	if err != nil {
		return storageError(".", err)
	}
	if err := u.look(ctx); err != nil {
		return err
	}
	u.isDone.Store(true)
	return nil
}

// Progress returns the progress of the fetch. It is not ready before the archives are unpacked.
func (u *unpacking) Progress() fetch.Progress {
	p := u.Fetcher.Progress()
	if p.Ready && !u.isDone.Load() {
		p.Ready, p.Stage = false, fetch.StageVerifying
	}
	return p
}

// look returns an error if the artifact lacks a file that the engine needs.
func (u *unpacking) look(ctx context.Context) error {
	for _, file := range u.wanted.Files {
		if _, err := u.config.Root.Lstat(file); err != nil {
			return u.lacks(file, err)
		}
		if err := u.check(ctx, file); err != nil {
			return err
		}
	}
	if u.wanted.Selection.isEmpty() || u.wanted.wantsEverything() {
		return nil
	}
	for _, pattern := range u.wanted.Selection.Weights {
		found, err := fs.Glob(u.config.Root.FS(), pattern)
		if err != nil {
			return storageError(pattern, err)
		}
		if len(found) > 0 {
			return nil
		}
	}
	return u.lacks(u.wanted.Selection.Weights[0], fs.ErrNotExist)
}

func (u *unpacking) lacks(file string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return storageError(file, err)
	}
	return &hub.NotFoundError{File: hub.File{Repo: u.config.Repo, Revision: u.config.Revision, Path: file}, Missing: "file"}
}

// check hashes a file from an archive. Files that are layers were already compared with the manifest.
func (u *unpacking) check(ctx context.Context, file string) error {
	given, isGiven := u.wanted.SHA256[file]
	listed, _ := u.readListing()
	if !isGiven || listed.has(file) {
		return nil
	}
	info, exists, err := u.volume.exists(file)
	if err != nil || !exists {
		return u.lacks(file, errors.Join(err, fs.ErrNotExist))
	}
	whole := target{want: want{file: hub.File{Path: file}}, size: info.Size(), digest: given}
	err = (place{u.volume, file}).hash(ctx, whole, u.stall.moved)
	if other := new(hub.ChecksumError); errors.As(err, &other) {
		return &OtherFileError{Path: file, Want: given, Got: other.Got}
	}
	return err
}
