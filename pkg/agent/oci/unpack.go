// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"
)

const (
	// layersDir holds the fetched archives, in their order.
	layersDir = ".layers"
	// Archives is a pattern that matches these archives.
	Archives = layersDir + "/*.tar"
	// stagingDir is where archives are unpacked. unpackedName lists the finished archives.
	stagingDir   = ".unpacking"
	unpackedName = layersDir + "/unpacked"
	// contentDir is the directory with the files of an image without a program, such as KAITO's.
	contentDir = "data"
	// unpackAnnotation marks a directory that ORAS packed. The layer's title is then not a file name.
	unpackAnnotation = "io.deis.oras.content.unpack"
)

const (
	dirMode  = 0o755
	fileMode = 0o644
	// maxWindow is zstd's window in bytes at its highest level. The decoder needs that much memory.
	maxWindow = 128 << 20
	// maxName bounds the path of a file in an archive, and thereby the depth of directories.
	maxName = 1024
)

// isArchive reports whether a layer contains files instead of being a file.
func isArchive(layer v1.Descriptor) bool {
	if layer.Annotations[titleAnnotation] != "" || layer.Annotations[pathAnnotation] != "" {
		return layer.Annotations[unpackAnnotation] == "true"
	}
	return layer.MediaType.IsLayer()
}

// archiveName returns the name of a layer's archive. The names sort in the order of the layers.
func archiveName(index int, layer v1.Descriptor) string {
	return fmt.Sprintf("%s/%04d-%s.tar", layersDir, index, layer.Digest.Hex)
}

// Limits bound the unpacked contents of all layers of an artifact.
type Limits struct {
	// Bytes of the archives after decompression.
	Bytes int64
	// Entries are files, links and their directories.
	Entries int
}

// LimitError reports an artifact that unpacks to more than a limit.
type LimitError struct {
	// Layer is the archive that exceeds the limit.
	Layer string
	Limit int64
	// What is the unit of the limit: "bytes" or "entries".
	What string
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("oci: layer %s: the artifact unpacks to more than %d %s", e.Layer, e.Limit, e.What)
}

// Unpack moves the files of the fetched layers to their place in dir. root is a handle of dir. If the layers have a
// directory data/, it moves only the files below it, otherwise all. Without layers, or after an earlier run, it does
// nothing. Beyond a limit, it fails with a LimitError and removes the unpacked files.
func Unpack(root *os.Root, dir string, limits Limits) error {
	archives, err := fs.Glob(root.FS(), Archives)
	if err != nil || len(archives) == 0 {
		return err
	}
	done := []byte(strings.Join(archives, "\n"))
	if is, err := root.ReadFile(unpackedName); err == nil && bytes.Equal(is, done) {
		return nil
	}
	if err := root.RemoveAll(stagingDir); err != nil {
		return err
	}
	into := &staging{root: root, limits: limits, bytes: limits.Bytes, entries: limits.Entries}
	for _, archive := range archives {
		// This does not use root, because cached files are links that lead out of it.
		if err := into.unpack(filepath.Join(dir, archive)); err != nil {
			return errors.Join(fmt.Errorf("unpacking layer %s: %w", path.Base(archive), err), root.RemoveAll(stagingDir))
		}
	}
	if err := moveUp(root); err != nil {
		return err
	}
	return root.WriteFile(unpackedName, done, fileMode)
}

// moveUp moves the unpacked files to their place.
func moveUp(root *os.Root) error {
	from := stagingDir
	if info, err := root.Stat(stagingDir + "/" + contentDir); err == nil && info.IsDir() {
		from += "/" + contentDir
	}
	entries, err := fs.ReadDir(root.FS(), from)
	if err != nil {
		return fmt.Errorf("the layers contain no files: %w", err)
	}
	for _, entry := range entries {
		if err := errors.Join(root.RemoveAll(entry.Name()), root.Rename(from+"/"+entry.Name(), entry.Name())); err != nil {
			return err
		}
	}
	return root.RemoveAll(stagingDir)
}

// staging is the directory in which archives are unpacked.
type staging struct {
	root   *os.Root
	limits Limits
	// layer is the name of the present archive; bytes and entries are the remaining limits.
	layer   string
	bytes   int64
	entries int
}

func (s *staging) unpack(file string) error {
	s.layer = filepath.Base(file)
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	content, err := inflate(bufio.NewReader(f))
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	archive := tar.NewReader(&inflated{content, s})
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.count(); err != nil {
			return err
		}
		if err := s.write(header, archive); err != nil {
			return err
		}
	}
}

// count subtracts one entry from the remaining limit.
func (s *staging) count() error {
	s.entries--
	if s.entries < 0 {
		return &LimitError{Layer: s.layer, Limit: int64(s.limits.Entries), What: "entries"}
	}
	return nil
}

// inflated counts the decompressed bytes of an archive, including skipped files.
type inflated struct {
	io.Reader
	of *staging
}

func (i *inflated) Read(p []byte) (int, error) {
	n, err := i.Reader.Read(p)
	if i.of.bytes -= int64(n); i.of.bytes < 0 {
		return 0, &LimitError{Layer: i.of.layer, Limit: i.of.limits.Bytes, What: "bytes"}
	}
	return n, err
}

// inflate decompresses a layer. It detects the compression by the first bytes, because the media type may be wrong.
func inflate(r *bufio.Reader) (io.ReadCloser, error) {
	begins := func(magic string) bool {
		got, err := r.Peek(len(magic))
		return err == nil && string(got) == magic
	}
	switch {
	case begins("\x1f\x8b"):
		return gzip.NewReader(r)
	case begins("\x28\xb5\x2f\xfd"):
		content, err := zstd.NewReader(r,
			zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return content.IOReadCloser(), nil
	}
	return io.NopCloser(r), nil
}

// write writes only regular files. Links could lead anywhere, and deletions by later layers concern only programs.
func (s *staging) write(header *tar.Header, content io.Reader) error {
	name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
	if header.Typeflag != tar.TypeReg || name == "" || strings.HasPrefix(path.Base(name), ".wh.") {
		return nil
	}
	if len(name) > maxName {
		return fmt.Errorf("the path of file %.100q has more than %d bytes", name, maxName)
	}
	// An image must not use names reserved for the agent.
	if top, _, _ := strings.Cut(name, "/"); top == layersDir || top == stagingDir {
		return nil
	}
	name = stagingDir + "/" + name
	if err := s.makeDir(path.Dir(name)); err != nil {
		return err
	}
	out, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Sync(), out.Close())
}

// makeDir creates a directory and its parents, and counts the new ones as entries.
func (s *staging) makeDir(dir string) error {
	if _, err := s.root.Stat(dir); err == nil {
		return nil
	}
	if dir != stagingDir {
		if err := errors.Join(s.makeDir(path.Dir(dir)), s.count()); err != nil {
			return err
		}
	}
	if err := s.root.Mkdir(dir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
