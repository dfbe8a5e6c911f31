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
	// Archives matches their names.
	Archives = layersDir + "/*.tar"
	// Archives are unpacked in stagingDir, and unpackedName lists the finished ones.
	stagingDir   = ".unpacking"
	unpackedName = layersDir + "/unpacked"
	// contentDir is the directory of files in images without a program, as in KAITO's.
	contentDir = "data"
	// unpackAnnotation marks a directory packed by ORAS; its title is not a file name.
	unpackAnnotation = "io.deis.oras.content.unpack"
)

const (
	dirMode  = 0o755
	fileMode = 0o644
	// maxWindow is zstd's window at its highest level; the decoder needs that much memory.
	maxWindow = 128 << 20
	// maxName bounds the path of a file in an archive, and so how deep directories lie.
	maxName = 1024
)

// isArchive reports whether a layer holds files instead of being one.
func isArchive(layer v1.Descriptor) bool {
	if layer.Annotations[titleAnnotation] != "" || layer.Annotations[pathAnnotation] != "" {
		return layer.Annotations[unpackAnnotation] == "true"
	}
	return layer.MediaType.IsLayer()
}

// archiveName sorts as the layers follow one another.
func archiveName(index int, layer v1.Descriptor) string {
	return fmt.Sprintf("%s/%04d-%s.tar", layersDir, index, layer.Digest.Hex)
}

// Limits bound the unpacked contents of all layers of an artifact.
type Limits struct {
	// Bytes of the archives once they are inflated.
	Bytes int64
	// Entries are files, links and their directories.
	Entries int
}

// LimitError reports an artifact that unpacks to more than a limit.
type LimitError struct {
	// Layer is the archive that exceeds the limit.
	Layer string
	Limit int64
	// The counted unit: "bytes" or "entries".
	What string
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("oci: layer %s: the artifact unpacks to more than %d %s", e.Layer, e.Limit, e.What)
}

// Unpack moves the files of the fetched layers to their place in dir; root is a handle of dir. It takes the files
// below data/ if there is such a directory, and otherwise all. Without layers, or after an earlier run, it does
// nothing. Beyond a limit it fails with a LimitError, and leaves nothing of the archives.
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
		// Not through root, because cached files are links out of it.
		if err := into.unpack(filepath.Join(dir, archive)); err != nil {
			return errors.Join(fmt.Errorf("unpacking layer %s: %w", path.Base(archive), err), root.RemoveAll(stagingDir))
		}
	}
	if err := moveUp(root); err != nil {
		return err
	}
	return root.WriteFile(unpackedName, done, fileMode)
}

// moveUp gives the unpacked files their place.
func moveUp(root *os.Root) error {
	from := stagingDir
	if info, err := root.Stat(stagingDir + "/" + contentDir); err == nil && info.IsDir() {
		from += "/" + contentDir
	}
	entries, err := fs.ReadDir(root.FS(), from)
	if err != nil {
		return fmt.Errorf("the layers hold no files: %w", err)
	}
	for _, entry := range entries {
		if err := errors.Join(root.RemoveAll(entry.Name()), root.Rename(from+"/"+entry.Name(), entry.Name())); err != nil {
			return err
		}
	}
	return root.RemoveAll(stagingDir)
}

// staging is the directory for unpacking archives.
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

// count takes one entry off the remaining limit.
func (s *staging) count() error {
	s.entries--
	if s.entries < 0 {
		return &LimitError{Layer: s.layer, Limit: int64(s.limits.Entries), What: "entries"}
	}
	return nil
}

// inflated counts the bytes of an archive, kept or not.
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

// inflate detects the compression of a layer by its first bytes: its media type may be wrong.
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

// write keeps regular files only. Links could lead anywhere, and deletions by a later layer concern programs.
func (s *staging) write(header *tar.Header, content io.Reader) error {
	name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
	if header.Typeflag != tar.TypeReg || name == "" || strings.HasPrefix(path.Base(name), ".wh.") {
		return nil
	}
	if len(name) > maxName {
		return fmt.Errorf("the path of file %.100q has more than %d bytes", name, maxName)
	}
	// Names reserved for the agent are not an image's.
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

// makeDir makes a directory and those above it, and counts those of the archive.
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
