// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/modelberth/modelberth/pkg/mirror"
)

// imageNames returns the images of the project, and imageArchitectures the architectures of each.
func imageNames() []string { return []string{"controller", "agent", "router"} }

func imageArchitectures() []string { return []string{"amd64", "arm64"} }

// annotationReference is the name of an image in a layout, relative to its later registry.
const annotationReference = "org.opencontainers.image.ref.name"

// content is an image or the chart in the bundle.
type content struct {
	// reference is PATH:TAG below a registry.
	reference string
	digest    v1.Hash
}

// addImages adds each image with all its architectures under one reference, with a signature if there is a key.
func (r *release) addImages(context.Context) error {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r.store, err = layout.Write(filepath.Join(r.out, "bundle"), empty.Index)
	if err != nil {
		return err
	}
	for _, name := range imageNames() {
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, arch := range imageArchitectures() {
			tarball := filepath.Join(r.images, name+"-"+arch+".tar")
			if arch == runtime.GOARCH { // hack/images.sh names only the other architectures
				tarball = filepath.Join(r.images, name+".tar")
			}
			img, err := readImage(tarball, filepath.Join(dir, name+arch))
			if err != nil {
				return err
			}
			index = mutate.AppendManifests(index, mutate.IndexAddendum{
				Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
			})
		}
		if err := r.addIndex("modelberth-"+name, index); err != nil {
			return err
		}
	}
	return nil
}

// readImage reads the only image of an OCI image layout in a tar. It unpacks the content into dir.
func readImage(tarball, dir string) (v1.Image, error) {
	err := os.MkdirAll(dir, modeDir)
	if err == nil {
		err = mirror.Unpack(tarball, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", tarball, err)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("%s is not an OCI image layout: %w", tarball, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", tarball, err)
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("%s holds %d images, want one", tarball, len(manifest.Manifests))
	}
	return index.Image(manifest.Manifests[0].Digest)
}

func (r *release) addIndex(repository string, index v1.ImageIndex) error {
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	reference := repository + ":" + r.version
	if err := r.store.AppendIndex(index, layout.WithAnnotations(map[string]string{annotationReference: reference})); err != nil {
		return err
	}
	return r.added(repository, reference, digest)
}

func (r *release) addImage(repository, tag string, img v1.Image) error {
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	reference := repository + ":" + tag
	if err := r.store.AppendImage(img, layout.WithAnnotations(map[string]string{annotationReference: reference})); err != nil {
		return err
	}
	return r.added(repository, reference, digest)
}

// added records an image as part of the bundle, and signs it.
func (r *release) added(repository, reference string, digest v1.Hash) error {
	r.contents = append(r.contents, content{reference, digest})
	if r.key == nil {
		return nil
	}
	signature, tag, err := signatureOf(r.key, r.registry+"/"+repository, digest)
	if err != nil {
		return err
	}
	return r.store.AppendImage(signature, layout.WithAnnotations(map[string]string{annotationReference: repository + ":" + tag}))
}

// bundle packs the layout into one file.
func (r *release) bundle(context.Context) error {
	dir := filepath.Join(r.out, "bundle")
	packed, err := packed(dir)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return r.write("modelberth-"+r.version+"-bundle.tar", packed)
}

// packed returns a tar of only the files in a directory. The same files give the same bytes.
func packed(dir string) ([]byte, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	err := eachFile(dir, func(name string, data []byte) error {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: modeFile, Size: int64(len(data)), ModTime: epoch()}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err := archive.Write(data)
		return err
	})
	if err == nil {
		err = archive.Close()
	}
	return out.Bytes(), err
}

// eachFile reads the files in a directory and below, in the order of their names.
func eachFile(dir string, do func(name string, data []byte) error) error {
	root := os.DirFS(dir)
	return fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		return do(name, data)
	})
}
