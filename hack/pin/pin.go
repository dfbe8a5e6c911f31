// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// sources has the functions that resolve a repository's branch and an image's tag.
type sources struct {
	commit func(repo, revision string) (string, error)
	digest func(image string) (string, error)
}

// pin writes the sources' answers into the files. If a source has no answer for a place, for example for a gated
// repository without a token, the place stays as it is, and pin returns an error at the end.
func pin(places []place, from sources, out io.Writer) error {
	var errs []error
	for _, p := range places {
		value, err := from.pinned(p)
		if err == nil {
			err = p.write(value)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p, err))
			continue
		}
		fmt.Fprintf(out, "%s is %s\n", p, value)
	}
	return errors.Join(errs...)
}

// pinned returns the replacement of a value.
func (s sources) pinned(p place) (string, error) {
	if p.name != "" {
		return s.commit(p.name, p.value)
	}
	digest, err := s.digest(p.value)
	if err != nil {
		return "", err
	}
	return p.value + "@" + digest, nil
}

// write replaces the value at the end of its line.
func (p place) write(value string) error {
	content, err := os.ReadFile(p.file)
	if err != nil {
		return err
	}
	lines := strings.Split(string(content), "\n")
	if p.line >= len(lines) || !strings.HasSuffix(strings.TrimRight(lines[p.line], " \t"), p.value) {
		return errors.New("the file has changed meanwhile: run this again")
	}
	at := strings.LastIndex(lines[p.line], p.value)
	lines[p.line] = lines[p.line][:at] + value + lines[p.line][at+len(p.value):]
	return os.WriteFile(p.file, []byte(strings.Join(lines, "\n")), 0o644)
}

// digestOf asks a registry for the digest of an image, or of its index if there is one image for each platform.
func digestOf(image string, options ...remote.Option) (string, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return "", err
	}
	found, err := remote.Head(ref, options...)
	if err != nil {
		return "", err
	}
	return found.Digest.String(), nil
}
