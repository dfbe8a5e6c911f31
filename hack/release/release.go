// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// File and directory modes of everything in a release.
const (
	modeFile = 0o644
	modeDir  = 0o755
)

// epoch returns the time of every file of a release. It is fixed, so that only the content decides the checksum.
func epoch() time.Time { return time.Unix(0, 0).UTC() }

// release is the state of a release during its build.
type release struct {
	settings

	files     []artifact
	platforms []cliArchive
	// store is the bundle's OCI image layout, and contents are the images and the chart in it.
	store    layout.Path
	contents []content
}

// artifact is a file of the release.
type artifact struct {
	name   string
	sha256 string
	size   int64
}

// write adds a file to the release.
func (r *release) write(name string, data []byte) error {
	path := filepath.Join(r.out, name)
	if err := os.MkdirAll(filepath.Dir(path), modeDir); err != nil {
		return err
	}
	if err := os.WriteFile(path, data, modeFile); err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	r.files = append(r.files, artifact{name: name, sha256: hex.EncodeToString(sum[:]), size: int64(len(data))})
	return nil
}

// checksums writes SHA256SUMS in the form of sha256sum, with its signature. It covers all files.
func (r *release) checksums(context.Context) error {
	var sums bytes.Buffer
	slices.SortFunc(r.files, func(a, b artifact) int { return cmp.Compare(a.name, b.name) })
	for _, file := range r.files {
		fmt.Fprintf(&sums, "%s  %s\n", file.sha256, file.name)
	}
	if err := r.write("SHA256SUMS", sums.Bytes()); err != nil {
		return err
	}
	if r.key == nil {
		return nil
	}
	signature, err := sign(r.key, sums.Bytes())
	if err != nil {
		return err
	}
	return r.write("SHA256SUMS.sig", []byte(signature+"\n"))
}

// report prints the results.
func (r *release) report(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FILE\tSIZE\tSHA-256")
	for _, file := range r.files {
		fmt.Fprintf(table, "%s\t%.1f MB\t%.12s\n", file.name, float64(file.size)/1e6, file.sha256)
	}
	fmt.Fprintln(table, "\t\t\nREFERENCE\t\tDIGEST")
	for _, content := range r.contents {
		fmt.Fprintf(table, "%s\t\t%s\n", content.reference, content.digest)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if r.key == nil {
		_, err := fmt.Fprintln(out, "\nNothing is signed: give -key to sign.")
		return err
	}
	return nil
}

// command runs a program in the source tree and returns its output.
func command(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, problems.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// head returns the tree's commit.
func head(ctx context.Context, top string) (string, error) {
	return command(ctx, top, nil, "git", "rev-parse", "HEAD")
}
