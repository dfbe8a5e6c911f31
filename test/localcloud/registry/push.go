// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// refAnnotations hold an image's reference in an OCI layout, the full one first.
func refAnnotations() []string {
	return []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"}
}

// Push copies the images in the file at path, a docker archive or an OCI layout in a tar, to the registry behind
// transport. They go under the file's references, or under as. It returns the references.
func Push(ctx context.Context, transport http.RoundTripper, path, as string) ([]string, error) {
	names, err := entryNames(path)
	if err != nil {
		return nil, err
	}
	var images map[string]v1.Image
	switch {
	case names["manifest.json"]:
		images, err = dockerImages(path, as)
	case names["oci-layout"]:
		dir, mkErr := os.MkdirTemp("", "modelberth-image-")
		if mkErr != nil {
			return nil, fmt.Errorf("making a place to unpack %s: %w", path, mkErr)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		images, err = layoutImages(path, dir, as)
	default:
		err = fmt.Errorf("%s is not an image: it has neither manifest.json (docker archive) nor oci-layout", path)
	}
	if err != nil {
		return nil, err
	}
	return pushAll(ctx, transport, images)
}

func pushAll(ctx context.Context, transport http.RoundTripper, images map[string]v1.Image) ([]string, error) {
	var pushed []string
	for reference, image := range images {
		tag, err := name.NewTag(reference, name.Insecure)
		if err != nil {
			return pushed, fmt.Errorf("image reference %q: %w", reference, err)
		}
		if err := remote.Write(tag, image, remote.WithTransport(transport), remote.WithContext(ctx)); err != nil {
			return pushed, fmt.Errorf("pushing %s: %w", reference, err)
		}
		pushed = append(pushed, tag.Name())
	}
	return pushed, nil
}

// entryNames lists the top-level files of a tar.
func entryNames(path string) (map[string]bool, error) {
	names := map[string]bool{}
	err := eachEntry(path, func(header *tar.Header, _ io.Reader) error {
		names[strings.TrimPrefix(header.Name, "./")] = true
		return nil
	})
	return names, err
}

func eachEntry(path string, visit func(*tar.Header, io.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening image: %w", err)
	}
	defer func() { _ = f.Close() }()
	archive := tar.NewReader(f)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading image %s: %w", path, err)
		}
		if err := visit(header, archive); err != nil {
			return err
		}
	}
}

func dockerImages(path, as string) (map[string]v1.Image, error) {
	opener := func() (io.ReadCloser, error) { return os.Open(path) }
	manifest, err := tarball.LoadManifest(opener)
	if err != nil {
		return nil, fmt.Errorf("reading image %s: %w", path, err)
	}
	images := map[string]v1.Image{}
	if as != "" {
		if len(manifest) != 1 {
			return nil, fmt.Errorf("%s holds %d images, so --as cannot name them: leave it out", path, len(manifest))
		}
		image, err := tarball.Image(opener, nil)
		if err != nil {
			return nil, fmt.Errorf("reading image %s: %w", path, err)
		}
		images[as] = image
		return images, nil
	}
	for _, descriptor := range manifest {
		for _, reference := range descriptor.RepoTags {
			tag, err := name.NewTag(reference, name.Insecure)
			if err != nil {
				return nil, fmt.Errorf("reference %q in %s: %w", reference, path, err)
			}
			image, err := tarball.Image(opener, &tag)
			if err != nil {
				return nil, fmt.Errorf("reading image %s of %s: %w", reference, path, err)
			}
			images[reference] = image
		}
	}
	return named(images, path)
}

func named(images map[string]v1.Image, path string) (map[string]v1.Image, error) {
	if len(images) == 0 {
		return nil, fmt.Errorf("%s gives its image no reference: name it with --as", path)
	}
	return images, nil
}

func layoutImages(path, dir, as string) (map[string]v1.Image, error) {
	if err := unpack(path, dir); err != nil {
		return nil, err
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("reading image %s: %w", path, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("reading the index of %s: %w", path, err)
	}
	if as != "" && len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("%s holds %d images, so --as cannot name them: leave it out", path, len(manifest.Manifests))
	}
	images := map[string]v1.Image{}
	for _, descriptor := range manifest.Manifests {
		reference := as
		for _, key := range refAnnotations() {
			if reference == "" {
				reference = descriptor.Annotations[key]
			}
		}
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			return nil, fmt.Errorf("reading image %s of %s: %w", descriptor.Digest, path, err)
		}
		if reference != "" {
			images[reference] = image
		}
	}
	return named(images, path)
}

// unpack writes the regular files of a tar below dir and refuses to leave it.
func unpack(path, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("opening %s: %w", dir, err)
	}
	defer func() { _ = root.Close() }()
	return eachEntry(path, func(header *tar.Header, content io.Reader) error {
		if header.Typeflag != tar.TypeReg {
			return nil
		}
		if err := root.MkdirAll(filepath.Dir(filepath.Clean(header.Name)), 0o755); err != nil {
			return fmt.Errorf("unpacking %s: %w", path, err)
		}
		out, err := root.Create(filepath.Clean(header.Name))
		if err != nil {
			return fmt.Errorf("unpacking %s: %w", path, err)
		}
		_, err = io.Copy(out, content)
		if closeErr := out.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return fmt.Errorf("unpacking %s of %s: %w", header.Name, path, err)
		}
		return nil
	})
}
