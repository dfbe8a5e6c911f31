// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// fileLayer returns a layer that is one plain file.
func fileLayer(title, content string) mutate.Addendum {
	return mutate.Addendum{
		Layer:       static.NewLayer([]byte(content), "application/octet-stream"),
		Annotations: map[string]string{"org.opencontainers.image.title": title},
	}
}

// archiveLayer returns a layer with an archive of one file.
func archiveLayer(t *testing.T, path, content string) mutate.Addendum {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Name: path, Typeflag: tar.TypeReg, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return mutate.Addendum{Layer: layer}
}

// push pushes an artifact and returns its reference.
func push(t *testing.T, server *httptest.Server, repository string, layers ...mutate.Addendum) string {
	t.Helper()
	image, err := mutate.Append(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimPrefix(server.URL, "http://") + "/" + repository + ":v1"
	ref, err := name.ParseReference(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image, remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
	return text
}

// An engine needs certain files of an artifact. They are layers or are inside layers. The agent fetches nothing else.
func TestWantedFilesOfAnArtifact(t *testing.T) {
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer s.Close()
	plain := push(t, s, "plain", fileLayer("q4/model.gguf", "weights"), fileLayer("README.md", "hello"))
	packed := push(t, s, "packed", archiveLayer(t, "data/q4/model.gguf", "weights"))
	whole := push(t, s, "whole", fileLayer("model.safetensors", "weights"), fileLayer("config.json", "{}"), fileLayer("logo.png", "x"))
	sum, other := sha256Hex([]byte("weights")), strings.Repeat("0", 64)
	for _, tc := range []struct {
		reason string
		args   []string
		// there is a file that must exist afterwards. absent is a file that must not be fetched.
		there, absent string
		// says is a part of the failed agent's termination message.
		says string
	}{
		{"a layer", []string{"--image", plain, "--file", "q4/model.gguf", "--sha256", "q4/model.gguf=" + sum}, "q4/model.gguf", "README.md", ""},
		{"in an archive", []string{"--image", packed, "--file", "q4/model.gguf", "--sha256", "q4/model.gguf=" + sum}, "q4/model.gguf", "README.md", ""},
		{"selected", []string{"--image", whole, "--weights", "*.safetensors", "--include", "*.json"}, "config.json", "logo.png", ""},
		{"another layer under the name", []string{"--image", plain, "--file", "q4/model.gguf", "--sha256", "q4/model.gguf=" + other}, "", "", "instead of " + other},
		{"another file in an archive", []string{"--image", packed, "--file", "q4/model.gguf", "--sha256", "q4/model.gguf=" + other}, "", "", "instead of " + other},
		{"no such layer", []string{"--image", plain, "--file", "model.gguf"}, "", "", `has no file "model.gguf"`},
		{"not in the archive", []string{"--image", packed, "--file", "model.gguf"}, "", "", `has no file "model.gguf"`},
		{"nothing matches", []string{"--image", packed, "--weights", "*.safetensors"}, "", "", `has no file "*.safetensors"`},
		{"no such artifact", []string{"--image", plain + "2", "--file", "model.gguf"}, "", "", `no revision "v12"`},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			dir := volumeDir(t)
			p := startPod(t, dir, append([]string{"fetch", "--dest", dir}, tc.args...)...)
			if tc.says != "" {
				if code := p.exitCode(t); code != 1 || !strings.Contains(strings.ReplaceAll(p.text(), `\`, ""), tc.says) {
					t.Errorf("exit code %d, want 1 and %q in:\n%s", code, tc.says, p.text())
				}
				return
			}
			address := p.address(t)
			waitUntil(t, "the files are ready", func() bool { return status(t, address+"/startupz") == http.StatusOK })
			if _, err := os.Stat(dir + "/" + tc.there); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(dir + "/" + tc.absent); err == nil {
				t.Errorf("%s was fetched, which nobody wants", tc.absent)
			}
			end(t, p)
		})
	}
}
