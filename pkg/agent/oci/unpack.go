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
	// layersDir holds the layers that are archives, in their order, once they are fetched.
	layersDir = ".layers"
	// Archives matches their names.
	Archives = layersDir + "/*.tar"
	// stagingDir is where they are unpacked, and unpackedName says which are.
	stagingDir   = ".unpacking"
	unpackedName = layersDir + "/unpacked"
	// contentDir is where images that carry files and no program keep them, as KAITO's do.
	contentDir = "data"
	// unpackAnnotation marks a directory that ORAS has packed; its title is no file's.
	unpackAnnotation = "io.deis.oras.content.unpack"
)

const (
	dirMode  = 0o755
	fileMode = 0o644
)

// isArchive says whether a layer holds files instead of being one.
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

// Unpack puts the files in the layers that were fetched into dir, of which root is a handle, in their place: what lies below
// data/, else everything. It does nothing where there are no such layers, or where it has done so before.
func Unpack(root *os.Root, dir string) error {
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
	for _, archive := range archives {
		// Not through root, because what a cache holds is a link out of it.
		if err := unpack(root, filepath.Join(dir, archive)); err != nil {
			return fmt.Errorf("unpacking layer %s: %w", path.Base(archive), err)
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

func unpack(root *os.Root, file string) error {
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
	archive := tar.NewReader(content)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := write(root, header, archive); err != nil {
			return err
		}
	}
}

// inflate reads a layer by what it begins with: its media type may say otherwise.
func inflate(r *bufio.Reader) (io.ReadCloser, error) {
	begins := func(magic string) bool {
		got, err := r.Peek(len(magic))
		return err == nil && string(got) == magic
	}
	switch {
	case begins("\x1f\x8b"):
		return gzip.NewReader(r)
	case begins("\x28\xb5\x2f\xfd"):
		content, err := zstd.NewReader(r)
		if err != nil {
			return nil, err
		}
		return content.IOReadCloser(), nil
	}
	return io.NopCloser(r), nil
}

// write keeps regular files only. Links could lead anywhere, and deletions by a later layer concern programs.
func write(root *os.Root, header *tar.Header, content io.Reader) error {
	name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
	if header.Typeflag != tar.TypeReg || name == "" || strings.HasPrefix(path.Base(name), ".wh.") {
		return nil
	}
	// What the agent keeps for itself is no image's.
	if top, _, _ := strings.Cut(name, "/"); top == layersDir || top == stagingDir {
		return nil
	}
	name = stagingDir + "/" + name
	if err := root.MkdirAll(path.Dir(name), dirMode); err != nil {
		return err
	}
	out, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Sync(), out.Close())
}
