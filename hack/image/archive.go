// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// Annotations with an image's name in a layout, for importers.
const (
	annotationContainerd = "io.containerd.image.name"
	annotationOCI        = "org.opencontainers.image.ref.name"
)

// save atomically writes an image under its reference as an OCI layout in a tar, and prints a line about it.
func save(img v1.Image, tag, to string, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return fmt.Errorf("creating a temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		return fmt.Errorf("reading the image's configuration: %w", err)
	}
	annotations := map[string]string{annotationContainerd: tag, annotationOCI: tag}
	if err := l.AppendImage(img, layout.WithAnnotations(annotations), layout.WithPlatform(*file.Platform())); err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	if err := pack(dir, to+".new"); err != nil {
		return errors.Join(err, os.Remove(to+".new"))
	}
	if err := os.Rename(to+".new", to); err != nil {
		return fmt.Errorf("naming the image: %w", err)
	}
	return describe(img, tag, to, out)
}

func describe(img v1.Image, tag, to string, out io.Writer) error {
	hash, err := img.Digest()
	if err != nil {
		return fmt.Errorf("computing the image's digest: %w", err)
	}
	info, err := os.Stat(to)
	if err != nil {
		return fmt.Errorf("reading the size of the image: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s %s %.1f MB %s\n", tag, hash, float64(info.Size())/1e6, to)
	return err
}

// pack writes a directory to a tar, in order and without times and owners.
func pack(dir, to string) (err error) {
	f, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	root := os.DirFS(dir)
	err = fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return packFile(w, root, name)
	})
	if err != nil {
		return fmt.Errorf("writing %s: %w", to, err)
	}
	return w.Close()
}

func packFile(w *tar.Writer, root fs.FS, name string) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	header := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: modeFile, Size: info.Size(), ModTime: created()}
	if err := w.WriteHeader(&header); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// load reads the only image of a tar from save. Its content is in a temporary directory until remove.
func load(from string) (img v1.Image, remove func() error, err error) {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return nil, nil, fmt.Errorf("unpacking %s: %w", from, err)
	}
	img, err = loadInto(dir, from)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return img, func() error { return os.RemoveAll(dir) }, nil
}

func loadInto(dir, from string) (v1.Image, error) {
	if err := unpack(from, dir); err != nil {
		return nil, err
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("%s is not an OCI image layout: %w", from, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", from, err)
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("%s holds %d images, want one", from, len(manifest.Manifests))
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", from, err)
	}
	return img, nil
}

func unpack(from, dir string) error {
	f, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("opening the image: %w", err)
	}
	defer func() { _ = f.Close() }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", from, err)
	}
	defer func() { _ = root.Close() }()
	archive := tar.NewReader(f)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && header.Typeflag == tar.TypeReg {
			err = unpackFile(root, header.Name, archive)
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", from, err)
		}
	}
}

func unpackFile(root *os.Root, name string, content io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), modeDir); err != nil {
		return err
	}
	f, err := root.Create(name)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, content); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}
