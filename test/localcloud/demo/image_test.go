// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"archive/tar"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func writeTar(t *testing.T, files map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{w.Close(), f.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestReadImage(t *testing.T) {
	index := func(manifests string) map[string]string {
		return map[string]string{"./index.json": `{"manifests":[` + manifests + `]}`}
	}
	cases := []struct {
		reason string
		files  map[string]string
		want   image
		err    string
	}{
		{
			reason: "the full reference counts",
			files: index(`{"digest":"` + digest + `","annotations":{"org.opencontainers.image.ref.name":"dev",` +
				`"io.containerd.image.name":"registry.local:5000/modelberth/agent:dev"}}`),
			want: image{name: "agent", repository: "registry.local:5000/modelberth/agent", digest: digest},
		},
		{
			reason: "a layout may hold the full reference as its name",
			files:  index(`{"digest":"` + digest + `","annotations":{"org.opencontainers.image.ref.name":"r.example/controller:v1"}}`),
			want:   image{name: "controller", repository: "r.example/controller", digest: digest},
		},
		{reason: "not a layout", files: map[string]string{"manifest.json": "[]"}, err: "has no index.json"},
		{reason: "two images", files: index(`{},{}`), err: "holds 2 images"},
		{reason: "no reference", files: index(`{"digest":"` + digest + `"}`), err: `has the reference ""`},
		{reason: "damaged", files: map[string]string{"index.json": "{"}, err: "reading the index"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			got, err := readImage(writeTar(t, c.files))
			if (err == nil) != (c.err == "") || (err != nil && !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("the error is %v, want one with %q", err, c.err)
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(image{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestChartValues(t *testing.T) {
	overlay := t.TempDir()
	if err := os.WriteFile(filepath.Join(overlay, "models.yaml"), []byte("models: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	images := []image{{name: "controller"}, {name: "agent"}, {name: "llamacpp", repository: "r/llamacpp", digest: digest}, {name: "pause"}}
	values, err := chartValues(images, overlay)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"llamacpp": "r/llamacpp@" + digest}, values["engineImages"]); diff != "" {
		t.Errorf("engineImages (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"models.yaml": "models: []\n"}, values["catalog"]); diff != "" {
		t.Errorf("catalog (-want +got):\n%s", diff)
	}
	if _, err := chartValues(images[1:], overlay); err == nil || !strings.Contains(err.Error(), "no image is named controller") {
		t.Errorf("without the controller's image the error is %v", err)
	}
	if _, err := chartValues(images, t.TempDir()); err == nil || !strings.Contains(err.Error(), "no YAML files") {
		t.Errorf("without the local model the error is %v", err)
	}
}

func TestShellJoin(t *testing.T) {
	cases := []struct{ reason, arg, want string }{
		{"a plain word stays", "--namespace=default", "--namespace=default"},
		{"JSON is quoted", `{"a": 1}`, `'{"a": 1}'`},
		{"a quote inside quotes", "it's", `'it'\''s'`},
		{"a URL is plain", "http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"},
		{"an URL with a query is not", "http://h/?a", "'http://h/?a'"},
	}
	for _, c := range cases {
		if got := shellJoin([]string{c.arg}); got != c.want {
			t.Errorf("%s: %s, want %s", c.reason, got, c.want)
		}
	}
}

func TestContentOf(t *testing.T) {
	cases := []struct{ reason, answer, want, err string }{
		{"an answer", `{"choices":[{"message":{"content":"hi"}}]}`, "hi", ""},
		{"no words", `{"choices":[]}`, "", "the answer is empty"},
		{"an error page", `<html>`, "", "not JSON"},
	}
	for _, c := range cases {
		got, err := contentOf(c.answer)
		if got != c.want || (err == nil) != (c.err == "") || (err != nil && !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %q and %v, want %q and an error with %q", c.reason, got, err, c.want, c.err)
		}
	}
}
