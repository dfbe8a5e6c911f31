// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/modelberth/modelberth/pkg/hub"
)

// place is a line of a file with a value to pin.
type place struct {
	file string
	line int
	// name is the repository of a model; empty for an image. value is the branch or the image.
	name, value string
}

func (p place) String() string {
	what := "image " + p.value
	if p.name != "" {
		what = p.name + " at " + p.value
	}
	return fmt.Sprintf("%s:%d: %s", p.file, p.line+1, what)
}

// scan finds the unpinned places in the files below a directory of presets.
func scan(dir string) ([]place, error) {
	var out []place
	for _, kind := range []struct {
		pattern string
		find    func(lines []string) []place
	}{{"models/*.yaml", openRevisions}, {"engines/*.yaml", openImages}} {
		files, err := filepath.Glob(filepath.Join(dir, kind.pattern))
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("there are no %s in %q: name the directory of the presets with -dir", kind.pattern, dir)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			for _, p := range kind.find(strings.Split(string(content), "\n")) {
				p.file = file
				out = append(out, p)
			}
		}
	}
	return out, nil
}

// openRevisions returns the artifacts with a revision other than a commit. An artifact names its repository first.
func openRevisions(lines []string) []place {
	repo, revision := field("repo"), field("revision")
	var out []place
	name := ""
	for i, line := range lines {
		if m := repo.FindStringSubmatch(line); m != nil {
			name = m[2]
		}
		if m := revision.FindStringSubmatch(line); m != nil && name != "" && !hub.IsCommit(m[2]) {
			out = append(out, place{line: i, name: name, value: m[2]})
		}
	}
	return out
}

// openImages returns the images without a digest.
func openImages(lines []string) []place {
	image := field("(?:image|cpuImage)")
	var out []place
	for i, line := range lines {
		m := image.FindStringSubmatch(line)
		if len(m) == 0 || strings.Contains(m[2], "@") {
			continue
		}
		out = append(out, place{line: i, value: m[2]})
	}
	return out
}

// field matches a line of a mapping: the part before its value, and the value.
func field(key string) *regexp.Regexp {
	return regexp.MustCompile(`^(\s+(?:- )?` + key + `:\s+)([^\s#"']+)\s*$`)
}
