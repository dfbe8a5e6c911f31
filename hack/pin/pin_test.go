// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const (
	commit = "0123456789abcdef0123456789abcdef01234567"
	pinned = "89abcdef0123456789abcdef0123456789abcdef"
)

const models = `# revision: main of a comment stays
models:
- name: a
  artifacts:
  - engine: vllm
    repo: org/Open
    revision: main
    quantization: bf16
  - engine: llamacpp
    repo: org/Pinned
    revision: ` + pinned + `
  - engine: vllm
    repo: org/Gated
    revision: v1
`

// presets returns a directory with the files of a model and an engine. The engine's image is in a registry of the test.
func presets(t *testing.T, image string) string {
	t.Helper()
	dir := t.TempDir()
	for file, content := range map[string]string{
		"models/a.yaml":  models,
		"engines/b.yaml": "engines:\n- name: b\n  image: " + image + "\n  cpuImage: " + image + "@sha256:" + strings.Repeat("a", 64) + "\n",
	} {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// newHub serves the repository org/Open. Another repository is gated.
func newHub(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/models/org/Open/revision/main" || r.Header.Get("Authorization") != "Bearer hf_token" {
			w.Header().Set("X-Error-Code", "GatedRepo")
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, `{"sha": %q}`, commit)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// push pushes an image to a registry of the test, and returns its name and digest.
func push(t *testing.T) (image, digest string) {
	t.Helper()
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	ref, err := name.ParseReference(strings.TrimPrefix(s.URL, "http://") + "/engines/b:v1")
	if err != nil {
		t.Fatal(err)
	}
	made, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := made.Digest()
	if err := errors.Join(err, remote.Write(ref, made, remote.WithContext(t.Context()))); err != nil {
		t.Fatal(err)
	}
	return ref.String(), hash.String()
}

func TestPin(t *testing.T) {
	image, digest := push(t)
	dir := presets(t, image)
	var out bytes.Buffer
	err := run(t.Context(), []string{"-dir", dir, "-hub", newHub(t)}, "hf_token", &out)
	if err == nil || !strings.Contains(err.Error(), "org/Gated at v1: hub: org/Gated@v1: access refused") || strings.Contains(err.Error(), "org/Open") {
		t.Errorf("run() = %v, want an error for the gated repository alone", err)
	}
	if strings.Contains(fmt.Sprint(out.String(), err), "hf_token") {
		t.Error("the token is shown")
	}
	for file, want := range map[string]string{
		"models/a.yaml":  strings.Replace(models, "    revision: main", "    revision: "+commit, 1),
		"engines/b.yaml": "engines:\n- name: b\n  image: " + image + "@" + digest + "\n  cpuImage: " + image + "@sha256:" + strings.Repeat("a", 64) + "\n",
	} {
		got, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

func TestCheck(t *testing.T) {
	dir := presets(t, "registry.invalid/b:v1")
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-dir", dir, "-check"}, "", &out); !errors.Is(err, errUnpinned) {
		t.Errorf("run() = %v, want errUnpinned", err)
	}
	want := dir + "/models/a.yaml:7: org/Open at main\n" + dir + "/models/a.yaml:14: org/Gated at v1\n" +
		dir + "/engines/b.yaml:3: image registry.invalid/b:v1\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if err := run(t.Context(), []string{"-dir", t.TempDir(), "-check"}, "", io.Discard); err == nil {
		t.Error("no error for a directory without presets")
	}
}

// If a file was edited in the meantime, an answer must not end up in another line.
func TestPinLeavesChangedFilesAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	const content = "a: b\n"
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, line := range []int{0, 7} {
		p := place{file: file, line: line, name: "org/a", value: "main"}
		if err := p.write(commit); err == nil {
			t.Errorf("line %d: no error", line)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != content {
		t.Errorf("the file is %q (%v), want it as it was", got, err)
	}
}
