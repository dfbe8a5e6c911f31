// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// image describes an image from its file.
type image struct {
	// name is the last part of the repository.
	name string
	// repository without tag, as on nodes.
	repository string
	// digest of the manifest. Images are installed by it: an unchanged tag would leave an old image running.
	digest string
}

// maxIndex bounds the index of an image.
const maxIndex = 1 << 20

// readImage reads the reference and digest of the only image in an OCI layout in a tar.
func readImage(file string) (image, error) {
	data, err := indexOf(file)
	if err != nil {
		return image{}, err
	}
	var index struct {
		Manifests []struct {
			Digest      string            `json:"digest"`
			Annotations map[string]string `json:"annotations"`
		} `json:"manifests"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return image{}, fmt.Errorf("reading the index of image %s: %w", file, err)
	}
	if len(index.Manifests) != 1 {
		return image{}, fmt.Errorf("image %s holds %d images, want one", file, len(index.Manifests))
	}
	manifest := index.Manifests[0]
	reference := manifest.Annotations["io.containerd.image.name"]
	if reference == "" {
		reference = manifest.Annotations["org.opencontainers.image.ref.name"]
	}
	repository, _, found := cutLast(reference, ":")
	if !found || strings.Contains(path.Base(reference), "@") || manifest.Digest == "" {
		return image{}, fmt.Errorf("image %s has the reference %q and the digest %q, want REGISTRY/NAME:TAG and a digest", file, reference, manifest.Digest)
	}
	return image{name: path.Base(repository), repository: repository, digest: manifest.Digest}, nil
}

// indexOf returns index.json of an OCI layout in a tar.
func indexOf(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("opening image: %w", err)
	}
	defer func() { _ = f.Close() }()
	archive := tar.NewReader(f)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s is not an image: it has no index.json", file)
		}
		if err != nil {
			return nil, fmt.Errorf("reading image %s: %w", file, err)
		}
		if path.Clean(header.Name) == "index.json" {
			return io.ReadAll(io.LimitReader(archive, maxIndex))
		}
	}
}
