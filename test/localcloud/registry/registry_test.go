// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"archive/tar"
	"context"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const reference = "registry.local:5000/modelberth/agent:dev"

// newTestRegistry returns a way to a registry with its layers in a directory.
func newTestRegistry(t *testing.T) http.RoundTripper {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: Handler(t.TempDir())}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "tcp", listener.Addr().String())
	}}
}

func testImage(t *testing.T) v1.Image {
	t.Helper()
	image, err := random.Image(100, 2)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// dockerArchive writes images in docker's format.
func dockerArchive(t *testing.T, images map[string]v1.Image) string {
	t.Helper()
	tags := map[name.Tag]v1.Image{}
	for ref, image := range images {
		tag, err := name.NewTag(ref)
		if err != nil {
			t.Fatal(err)
		}
		tags[tag] = image
	}
	path := filepath.Join(t.TempDir(), "docker.tar")
	if err := tarball.MultiWriteToFile(path, tags); err != nil {
		t.Fatal(err)
	}
	return path
}

// ociArchive writes one image as a tar of an OCI layout.
func ociArchive(t *testing.T, image v1.Image, annotations map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Annotations: annotations}})
	if _, err := layout.Write(dir, index); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "oci.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	archive := tar.NewWriter(f)
	if err := archive.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPush(t *testing.T) {
	image := testImage(t)
	for _, test := range []struct {
		reason string
		path   string
		as     string
		want   string
	}{
		{reason: "docker's format, by its own name", path: dockerArchive(t, map[string]v1.Image{reference: image}), want: reference},
		{reason: "docker's format, by another name", path: dockerArchive(t, map[string]v1.Image{reference: image}), as: "registry.local:5000/x:1", want: "registry.local:5000/x:1"},
		{reason: "OCI, by containerd's annotation", path: ociArchive(t, image, map[string]string{"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": "dev"}), want: reference},
		{reason: "OCI, by the standard's annotation", path: ociArchive(t, image, map[string]string{"org.opencontainers.image.ref.name": reference}), want: reference},
		{reason: "OCI without a name", path: ociArchive(t, image, nil), as: reference, want: reference},
	} {
		t.Run(test.reason, func(t *testing.T) {
			transport := newTestRegistry(t)
			pushed, err := Push(t.Context(), transport, test.path, test.as)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{test.want}, pushed); diff != "" {
				t.Errorf("pushed references (-want +got):\n%s", diff)
			}
			tag, err := name.NewTag(test.want, name.Insecure)
			if err != nil {
				t.Fatal(err)
			}
			got, err := remote.Image(tag, remote.WithTransport(transport))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(layers(t, image), layers(t, got)); diff != "" {
				t.Errorf("layers of what comes back (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPushKeepsTheDigest matters to whoever deploys by digest.
func TestPushKeepsTheDigest(t *testing.T) {
	image, transport := testImage(t), newTestRegistry(t)
	if _, err := Push(t.Context(), transport, ociArchive(t, image, nil), reference); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	by, err := name.NewDigest("registry.local:5000/modelberth/agent@"+digest.String(), name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := remote.Image(by, remote.WithTransport(transport)); err != nil {
		t.Errorf("the image is not there under the digest that it has in the file: %v", err)
	}
}

func layers(t *testing.T, image v1.Image) []string {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, id := range config.RootFS.DiffIDs {
		ids = append(ids, id.String())
	}
	return ids
}

func TestPushRefuses(t *testing.T) {
	a, b := testImage(t), testImage(t)
	plain := filepath.Join(t.TempDir(), "plain.tar")
	if err := os.WriteFile(plain, make([]byte, 1024), 0o644); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("not a tar ", 100)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ reason, path, as, wantErr string }{
		{"no file", filepath.Join(t.TempDir(), "none"), "", "opening image"},
		{"no tar", text, "", "reading image"},
		{"a tar without an image", plain, "", "neither manifest.json (docker archive) nor oci-layout"},
		{"an image without a name", ociArchive(t, a, nil), "", "name it with --as"},
		{"one name for two", dockerArchive(t, map[string]v1.Image{"r/a:1": a, "r/b:1": b}), "r/c:1", "holds 2 images"},
		{"a name that is none", ociArchive(t, a, nil), "NOT A NAME", `image reference "NOT A NAME"`},
	} {
		t.Run(test.reason, func(t *testing.T) {
			_, err := Push(t.Context(), newTestRegistry(t), test.path, test.as)
			if err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("Push says %v, want something with %q", err, test.wantErr)
			}
		})
	}
}

func TestUnpackStaysInItsDirectory(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "in")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "evil.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewWriter(f)
	if err := archive.WriteHeader(&tar.Header{Name: "../out", Typeflag: tar.TypeReg, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unpack(path, dir); err == nil {
		t.Error("a file that leads out of the directory is unpacked")
	}
	if _, err := os.Stat(filepath.Join(parent, "out")); !os.IsNotExist(err) {
		t.Errorf("it was written: %v, want %v", err, fs.ErrNotExist)
	}
}
