// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
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

// The program fetches a model from a registry with broken connections, and needs no registry after a restart.
func TestArtifact(t *testing.T) {
	weights := noise(3 << 20)
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	cuts := make(chan struct{}, 3)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.Header.Get("Range") != "" {
			select {
			case cuts <- struct{}{}:
				w = &cutWriter{w, 500_000}
			default:
			}
		}
		handler.ServeHTTP(w, r)
	}))
	defer s.Close()
	image := strings.TrimPrefix(s.URL, "http://") + "/models/small:v1"
	ref, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	made, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer:       static.NewLayer(weights, "application/octet-stream"),
		Annotations: map[string]string{"org.opencontainers.image.title": "q4/model.gguf"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, made, remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
	dir := volumeDir(t)
	for _, reason := range []string{"first", "again, without a registry"} {
		p := startPod(t, dir, "fetch", "--image", image, "--dest", dir)
		address := p.address(t)
		waitUntil(t, "the file is ready: "+reason, func() bool { return status(t, address+"/startupz") == http.StatusOK })
		if got, err := os.ReadFile(dir + "/q4/model.gguf"); err != nil || !bytes.Equal(got, weights) {
			t.Errorf("%s: content differs (%v)", reason, err)
		}
		end(t, p)
		s.Close()
	}
	if len(cuts) != cap(cuts) {
		t.Errorf("%d connections broke, want %d", len(cuts), cap(cuts))
	}
}

// cutWriter breaks the connection after some bytes.
type cutWriter struct {
	http.ResponseWriter
	left int
}

func (w *cutWriter) Write(b []byte) (int, error) {
	if len(b) > w.left {
		_, _ = w.ResponseWriter.Write(b[:w.left])
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	w.left -= len(b)
	return w.ResponseWriter.Write(b)
}

// The program fetches an image in the form of KAITO's adapters, and needs no registry after a restart.
func TestImage(t *testing.T) {
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer s.Close()
	image := strings.TrimPrefix(s.URL, "http://") + "/adapters/small:v1"
	ref, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	weights := noise(1 << 20)
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		err := w.WriteHeader(&tar.Header{Name: "data/adapter_model.safetensors", Typeflag: tar.TypeReg, Size: int64(len(weights))})
		_, writeErr := w.Write(weights)
		return io.NopCloser(&out), errors.Join(err, writeErr, w.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	made, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, made, remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
	fresh, cached := volumeDir(t), volumeDir(t)
	cache := []string{"--cache", t.TempDir()}
	for _, try := range []struct {
		dir  string
		args []string
	}{{fresh, nil}, {cached, cache}, {fresh, nil}, {cached, cache}} {
		dir := try.dir
		p := startPod(t, dir, slices.Concat(try.args, []string{"fetch", "--image", image, "--dest", dir})...)
		address := p.address(t)
		waitUntil(t, "the files are ready", func() bool { return status(t, address+"/startupz") == http.StatusOK })
		if got, err := os.ReadFile(dir + "/adapter_model.safetensors"); err != nil || !bytes.Equal(got, weights) {
			t.Errorf("%v: content differs (%v)", try.args, err)
		}
		end(t, p)
		if dir == cached {
			s.Close()
		}
	}
}
