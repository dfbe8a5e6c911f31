// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"log/slog"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/hub"
)

func TestExistingFiles(t *testing.T) {
	sum := func(s string) hub.Digest { return hub.Digest{Algorithm: hub.SHA256, Hex: sha256Hex([]byte(s))} }
	for _, tc := range []struct {
		reason string
		target Target
		bytes  int64
		want   error
	}{
		{"named, with all that is known of them", Target{Files: []string{"a.gguf", "q4/b.gguf"}, Sizes: map[string]int64{"a.gguf": 5}, SHA256: map[string]hub.Digest{"q4/b.gguf": sum("weights")}}, 12, nil},
		{"selected", Target{Selection: Selection{Weights: []string{"*.gguf"}, Include: []string{"*.json"}, Exclude: []string{"c*"}}}, 5, nil},
		{"selected in a directory", Target{Selection: Selection{Weights: []string{"q4/*.gguf"}, Include: []string{"q4/*.json"}}}, 7, nil},
		{"missing", Target{Files: []string{"z"}}, 0, &AbsentError{Path: "z", Found: -1}},
		{"cut off", Target{Files: []string{"a.gguf"}, Sizes: map[string]int64{"a.gguf": 6}}, 0, &AbsentError{Path: "a.gguf", Want: 6, Found: 5}},
		{"empty", Target{Files: []string{"empty"}}, 0, &AbsentError{Path: "empty"}},
		{"empty as it should be", Target{Files: []string{"empty"}, Sizes: map[string]int64{"empty": 0}}, 0, nil},
		{"nothing matches", Target{Selection: Selection{Weights: []string{"*.bin"}}}, 0, &AbsentError{Path: "*.bin", Found: -1}},
		{"other content", Target{Files: []string{"a.gguf"}, SHA256: map[string]hub.Digest{"a.gguf": sum("other")}}, 0, &hub.ChecksumError{File: hub.File{Path: "a.gguf"}, Want: sum("other"), Got: sum("first").Hex}},
		{"a way out of the volume", Target{Files: []string{"out"}}, 0, new(StorageError)},
		{"a directory", Target{Files: []string{"q4"}}, 0, new(StorageError)},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir+"/a.gguf", []byte("first"))
			if err := os.Mkdir(dir+"/q4", 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, dir+"/q4/b.gguf", []byte("weights"))
			write(t, dir+"/empty", nil)
			write(t, dir+"/c.json", []byte("{}"))
			if err := os.Symlink("/etc/passwd", dir+"/out"); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			v := newVerifier(tc.target, root, clock.RealClock{}, slog.New(slog.DiscardHandler))
			before := namesIn(t, dir)
			err = v.Run(t.Context())
			if errors.As(tc.want, new(*StorageError)) {
				if !errors.As(err, new(*StorageError)) {
					t.Errorf("Run() = %v, want a StorageError", err)
				}
			} else if diff := cmp.Diff(text(tc.want), text(err)); diff != "" {
				t.Errorf("Run() (-want +got):\n%s", diff)
			}
			p := v.Progress()
			if p.Ready != (tc.want == nil) || tc.want == nil && p.Bytes != tc.bytes {
				t.Errorf("Progress() = %+v, want ready %t with %d bytes", p, tc.want == nil, tc.bytes)
			}
			if diff := cmp.Diff(before, namesIn(t, dir)); diff != "" {
				t.Errorf("names on the volume have changed (-before +after):\n%s", diff)
			}
		})
	}
}

// The agent searches only directories that may have matching files. Directories of other models may be large, and ext4
// has a directory that only root can read.
func TestDirectoriesOfPatterns(t *testing.T) {
	for _, tc := range []struct {
		reason   string
		patterns []string
		dir      string
		want     bool
	}{
		{"files at the top", []string{"*.safetensors"}, "lost+found", false},
		{"the directory itself", []string{"models/phi-4/*.safetensors"}, "models/phi-4", true},
		{"on the way to it", []string{"models/phi-4/*.safetensors"}, "models", true},
		{"beside it", []string{"models/phi-4/*.safetensors"}, "models/phi-3", false},
		{"below it", []string{"models/phi-4/*.safetensors"}, "models/phi-4/original", false},
		{"any directory", []string{"*/*"}, "q4", true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if got := (Selection{Include: tc.patterns}).reaches(tc.dir); got != tc.want {
				t.Errorf("reaches(%q) of %q is %t, want %t", tc.dir, tc.patterns, got, tc.want)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// The program reports missing files at once, and serves existing files from a read-only volume.
func TestVerifyProgram(t *testing.T) {
	dir := volumeDir(t)
	missing := startPod(t, dir, "verify", "--dest", dir, "--file", "a")
	if code := missing.exitCode(t); code != 1 {
		t.Errorf("exit code %d, want 1:\n%s", code, missing.text())
	}
	write(t, dir+"/a", []byte("weights"))
	p := startPod(t, dir, "verify", "--dest", dir, "--file", "a", "--size", "a=7")
	address := p.address(t)
	waitUntil(t, "the file was seen", func() bool { return status(t, address+"/startupz") == 200 })
	end(t, p)
}
