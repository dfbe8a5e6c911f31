// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mirror sends a release's bundle to a registry. A bundle is an OCI image layout in a tar: images, the chart,
// and their signatures. Their names do not include a registry, so the bundle can go to any. The digests stay the same.
//
// It decides which content of a bundle is trusted. It must not know how a release is made or installed.
package mirror

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/modelberth/modelberth/pkg/cosign"
)

const (
	annotationReference = "org.opencontainers.image.ref.name"
	annotationSignature = "dev.cosignproject.cosign/signature"
	blobs               = "blobs/sha256"
)

// Limits of a bundle: the bytes of one file, and the number of files. A damaged bundle must not fill the disk.
const (
	maxFile  = 4 << 30
	maxFiles = 10_000
)

// Entry is an image, an index or an artifact in a bundle.
type Entry struct {
	// Repository and Tag name the entry in any registry.
	Repository, Tag string
	Digest          v1.Hash
	isIndex         bool
}

// IsSignature reports whether an entry is the signature of another entry. Its tag has cosign's form then.
func (e *Entry) IsSignature() bool {
	return strings.HasPrefix(e.Tag, "sha256-") && strings.HasSuffix(e.Tag, ".sig")
}

// Bundle is an unpacked bundle.
type Bundle struct {
	Entries []Entry

	dir   string
	index v1.ImageIndex
}

// Open unpacks a bundle into a temporary directory, and verifies the checksum of every blob. Close removes the
// directory.
func Open(file string) (bundle *Bundle, err error) {
	dir, err := os.MkdirTemp("", "berth-mirror-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for %s: %w", file, err)
	}
	b := &Bundle{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if err := Unpack(file, dir); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	if b.index, err = layout.ImageIndexFromPath(dir); err != nil {
		return nil, fmt.Errorf("%s is not a bundle of a release: %w", file, err)
	}
	manifest, err := b.index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("%s is not a bundle of a release: %w", file, err)
	}
	for _, descriptor := range manifest.Manifests {
		repository, tag, found := strings.Cut(descriptor.Annotations[annotationReference], ":")
		if !found {
			return nil, fmt.Errorf("%s is not a bundle of a release: %s has no name", file, descriptor.Digest)
		}
		b.Entries = append(b.Entries, Entry{repository, tag, descriptor.Digest, descriptor.MediaType.IsIndex()})
	}
	if len(b.Entries) == 0 {
		return nil, fmt.Errorf("%s is empty", file)
	}
	return b, nil
}

// Close removes the unpacked files.
func (b *Bundle) Close() error { return os.RemoveAll(b.dir) }

// Verify returns an error unless one of the keys signed every entry of the bundle.
func (b *Bundle) Verify(keys []cosign.Key) error {
	signed := map[string]bool{}
	for i := range b.Entries {
		entry := &b.Entries[i]
		if !entry.IsSignature() {
			continue
		}
		digest, err := b.signed(entry, keys)
		if err != nil {
			return fmt.Errorf("%s:%s: %w", entry.Repository, entry.Tag, err)
		}
		signed[entry.Repository+"@"+digest] = true
	}
	for _, entry := range b.Entries {
		if !entry.IsSignature() && !signed[entry.Repository+"@"+entry.Digest.String()] {
			return fmt.Errorf("%s:%s (%s) is not signed", entry.Repository, entry.Tag, entry.Digest)
		}
	}
	return nil
}

// signed returns the digest that a signature in the bundle signs.
func (b *Bundle) signed(entry *Entry, keys []cosign.Key) (string, error) {
	img, err := b.index.Image(entry.Digest)
	if err != nil {
		return "", err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return "", err
	}
	if len(manifest.Layers) != 1 {
		return "", fmt.Errorf("the signature has %d layers instead of one", len(manifest.Layers))
	}
	value, err := base64.StdEncoding.DecodeString(manifest.Layers[0].Annotations[annotationSignature])
	if err != nil {
		return "", fmt.Errorf("annotation %s is not base64: %w", annotationSignature, err)
	}
	layer, err := img.LayerByDigest(manifest.Layers[0].Digest)
	if err != nil {
		return "", err
	}
	content, err := layer.Compressed()
	if err != nil {
		return "", err
	}
	defer func() { _ = content.Close() }()
	payload, err := io.ReadAll(io.LimitReader(content, 1<<20))
	if err != nil {
		return "", err
	}
	return cosign.Signed(keys, payload, value)
}

// Unpack extracts an OCI image layout from a tar into a directory. It returns an error for a blob with a wrong
// checksum, and for an entry that is not a regular file.
func Unpack(file, dir string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	archive := tar.NewReader(f)
	for range maxFiles {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			return fmt.Errorf("%s is not a regular file", header.Name)
		}
		if header.Size > maxFile {
			return fmt.Errorf("%s has %d bytes, more than %d", header.Name, header.Size, int64(maxFile))
		}
		if err := unpackFile(root, header.Name, archive); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
	return fmt.Errorf("it has more than %d files", maxFiles)
}

// unpackFile writes one file. A blob's name must be its checksum.
func unpackFile(root *os.Root, name string, content io.Reader) (err error) {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	to, err := root.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(to, sum), content); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); path.Dir(name) == blobs && path.Base(name) != got {
		return fmt.Errorf("its checksum is %s: the bundle is damaged; download the bundle again", got)
	}
	return nil
}
