// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"

	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/agent/fetch"
	"github.com/modelberth/modelberth/pkg/hub"
)

// verifier checks files that users have put on a volume, possibly a read-only one.
type verifier struct {
	target  Target
	volume  *volume
	tracker *tracker
	log     *slog.Logger
}

func newVerifier(t Target, root *os.Root, c clock.PassiveClock, log *slog.Logger) *verifier {
	return &verifier{target: t, volume: newVolume(root), tracker: newTracker(c, t.Files), log: log}
}

// AbsentError is returned if a file is missing from its volume. Found is the wrong size of the file, or -1 if there is
// no file. Want is 0 if any size but 0 is right.
type AbsentError struct {
	Path        string
	Want, Found int64
}

func (e *AbsentError) Error() string {
	if e.Found < 0 {
		return fmt.Sprintf("volume: %q is missing", e.Path)
	}
	return fmt.Sprintf("volume: %q has %d bytes, want %d", e.Path, e.Found, e.Want)
}

// Progress counts the checked bytes.
func (v *verifier) Progress() fetch.Progress { return v.tracker.snapshot() }

// Settle does nothing, because a verifier writes nothing.
func (v *verifier) Settle(context.Context) error { return nil }

// Run returns nil if all files exist with the right size and contents.
func (v *verifier) Run(ctx context.Context) error {
	files := v.target.Files
	if len(files) == 0 {
		found, err := v.find()
		if err != nil {
			return err
		}
		var wants []want
		for _, path := range found {
			wants = append(wants, want{file: hub.File{Path: path}})
		}
		files = found
		v.tracker.expect(wants)
	}
	for _, path := range files {
		if err := v.look(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// find returns the selected files, in order.
func (v *verifier) find() ([]string, error) {
	s := v.target.Selection
	var found []string
	weights := 0
	err := fs.WalkDir(v.volume.root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return storageError(path, err)
		}
		if entry.IsDir() && path != "." && !s.reaches(path) {
			return fs.SkipDir // another model's directory, or one that only root may read, such as lost+found of ext4
		}
		isWeights := matches(s.Weights, path)
		if entry.IsDir() || (!isWeights && !matches(s.Include, path)) || matches(s.Exclude, path) {
			return nil
		}
		if isWeights {
			weights++
		}
		found = append(found, path)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if weights == 0 {
		return nil, &AbsentError{Path: s.Weights[0], Found: -1}
	}
	slices.Sort(found)
	return found, nil
}

func (v *verifier) look(ctx context.Context, path string) error {
	info, exists, err := v.volume.exists(path)
	if err != nil {
		return err
	}
	if !exists {
		return &AbsentError{Path: path, Found: -1}
	}
	size, isGiven := v.target.Sizes[path]
	if isGiven && info.Size() != size || !isGiven && info.Size() == 0 {
		return &AbsentError{Path: path, Want: size, Found: info.Size()}
	}
	if digest := v.target.SHA256[path]; !digest.IsZero() {
		v.tracker.set(fetch.FileProgress{Path: path, Stage: fetch.StageVerifying, TotalBytes: info.Size()})
		whole := target{want: want{file: hub.File{Path: path}}, size: info.Size(), digest: digest}
		if err := (place{v.volume, path}).hash(ctx, whole, func() {}); err != nil {
			return err
		}
	}
	v.tracker.set(fetch.FileProgress{Path: path, Stage: fetch.StageReady, Bytes: info.Size(), TotalBytes: info.Size()})
	v.log.Info("file is there", "file", path, "bytes", info.Size())
	return nil
}
