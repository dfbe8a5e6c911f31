// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/pkg/agent/oci"
	"github.com/modelberth/modelberth/pkg/hub"
)

const (
	verbFetch       = "fetch"
	verbVerify      = "verify"
	verbResolve     = "resolve"
	defaultRevision = "main"
	defaultDest     = "/models"
	defaultName     = "model"
)

// Target is one set of files in one directory.
type Target struct {
	// Name identifies the target in messages.
	Name string
	// Resolves is set if the agent only resolves the revision, for a later fetch. Such a target names no files.
	Resolves bool
	// IsThere is set if the files are already on the volume. The agent checks them and writes nothing.
	IsThere bool
	// Image is an artifact in a registry, instead of a repository of the hub.
	Image          string
	Repo, Revision string
	Files          []string
	Selection      Selection
	SHA256         map[string]hub.Digest
	// Sizes of existing files. Place is the name of their directory in messages.
	Sizes map[string]int64
	Place string
	Dest  string
	// Most is the largest size of the files together; 0 means no limit.
	Most int64
}

// parseTarget parses a verb and its flags, and returns the remaining arguments.
func parseTarget(args []string, usage io.Writer) (t Target, rest []string, err error) {
	if !slices.Contains([]string{verbFetch, verbVerify, verbResolve}, args[0]) {
		return t, nil, fmt.Errorf("unexpected argument %q: remove it, or give %q, %q or %q instead", args[0], verbFetch, verbVerify, verbResolve)
	}
	t = Target{Resolves: args[0] == verbResolve, IsThere: args[0] == verbVerify, SHA256: map[string]hub.Digest{}, Sizes: map[string]int64{}}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&t.Name, "for", defaultName, "name of the files in messages, one word such as weights")
	flags.StringVar(&t.Dest, "dest", defaultDest, "directory for the files")
	flags.Func("file", "`PATH` of a file; repeat for more", func(v string) error {
		t.Files = append(t.Files, v)
		return nil
	})
	t.Selection.define(flags)
	flags.Func("sha256", "`PATH=HEX`: expected checksum of a file, instead of the hub's; repeat for more", t.addSHA256)
	if t.IsThere {
		flags.Func("size", "`PATH=BYTES`: expected size of a file; repeat for more", t.addSize)
		flags.StringVar(&t.Place, "place", "", "name of the directory in messages; default: its path")
	} else {
		flags.StringVar(&t.Image, "image", "", "artifact in a registry, REGISTRY/REPOSITORY with :TAG or @DIGEST, instead of --repo")
		flags.StringVar(&t.Repo, "repo", "", "repository, ORG/NAME")
		flags.StringVar(&t.Revision, "revision", defaultRevision, "branch, tag or commit")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return Target{}, nil, err
	}
	if err := t.check(); err != nil {
		return Target{}, nil, err
	}
	return t, flags.Args(), nil
}

func (t *Target) addSize(v string) error {
	at := strings.LastIndex(v, "=")
	n, err := strconv.ParseInt(v[at+1:], 10, 64)
	if at < 0 || err != nil || n < 0 {
		return fmt.Errorf("%q is not of the form PATH=BYTES", v)
	}
	t.Sizes[v[:at]] = n
	return nil
}

func (t *Target) addSHA256(v string) error {
	at := strings.LastIndex(v, "=")
	if at < 0 {
		return fmt.Errorf("%q is not of the form PATH=HEX", v)
	}
	d, err := hub.ParseSHA256(v[at+1:])
	if err != nil {
		return err
	}
	t.SHA256[v[:at]] = d
	return nil
}

func (t *Target) check() error {
	switch {
	case t.Image != "" && t.Repo != "":
		return errors.New("--image and --repo cannot be combined: name one of them")
	case t.Image != "":
		if _, err := oci.New(t.Image, oci.Options{}); err != nil {
			return fmt.Errorf("--image %w", err)
		}
		if t.Selection.isEmpty() && len(t.Files) == 0 {
			t.Selection.Weights = everything()
		}
	case !t.IsThere:
		if err := errors.Join(checkRepo(t.Repo), checkRevision(t.Revision)); err != nil {
			return err
		}
	}
	if err := t.checkWanted(); err != nil {
		return err
	}
	for f := range t.Sizes {
		if !slices.Contains(t.Files, f) {
			return fmt.Errorf("--size names %q, but no --file does", f)
		}
	}
	if t.Dest == "" || t.Name == "" {
		return errors.New("--dest or --for is empty: give a directory and the kind of its files")
	}
	return nil
}

// checkTargets refuses two targets in one directory, because the agent would take files of one for the other's.
func checkTargets(targets []Target) error {
	seen := map[string]bool{}
	for _, t := range targets {
		if t.Resolves && len(targets) > 1 {
			return fmt.Errorf("%q is given with other targets: it must be the only target", verbResolve)
		}
		dest := filepath.Clean(t.Dest)
		if seen[dest] {
			return fmt.Errorf("--dest %q is given twice: give each target its own directory", t.Dest)
		}
		seen[dest] = true
	}
	return nil
}

// checkWanted requires that files are either named or selected.
func (t *Target) checkWanted() error {
	switch {
	case t.Resolves:
		return nil
	case t.Selection.isEmpty():
		return checkFiles(t.Files, t.SHA256)
	case len(t.Files)+len(t.SHA256) > 0:
		return errors.New("--weights, --include and --exclude select files of the whole repository: do not name files with --file and --sha256 too")
	case len(t.Selection.Weights) == 0:
		return errors.New("--weights is missing: give a pattern such as *.safetensors")
	}
	return nil
}

func checkRepo(repo string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9_][\w.-]*)?$`).MatchString(repo) {
		return fmt.Errorf("--repo is %q: give ORG/NAME", repo)
	}
	return nil
}

func checkRevision(revision string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9_][\w./+-]*$`).MatchString(revision) || strings.Contains(revision, "..") {
		return fmt.Errorf("--revision is %q: give a branch, tag or commit", revision)
	}
	return nil
}

func checkFiles(files []string, sums map[string]hub.Digest) error {
	if len(files) == 0 {
		return errors.New("--file is missing: name at least one file of the repository, or select files with --weights")
	}
	known := map[string]bool{}
	for _, f := range files {
		if err := CheckPath(f); err != nil {
			return fmt.Errorf("--file %w", err)
		}
		if known[f] {
			return fmt.Errorf("--file %q is given twice", f)
		}
		known[f] = true
	}
	for f := range sums {
		if !known[f] {
			return fmt.Errorf("--sha256 names %q, but no --file does", f)
		}
	}
	return nil
}
