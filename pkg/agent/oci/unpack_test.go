// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
)

// archive returns a tar of files by name. A name that ends in "@" is a link, and one that ends in "/" is a directory.
func archive(t *testing.T, entries ...[2]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, entry := range entries {
		header := &tar.Header{Name: entry[0], Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(entry[1]))}
		switch {
		case strings.HasSuffix(entry[0], "@"):
			header = &tar.Header{Name: strings.TrimSuffix(entry[0], "@"), Typeflag: tar.TypeSymlink, Linkname: entry[1]}
		case strings.HasSuffix(entry[0], "/"):
			header = &tar.Header{Name: entry[0], Typeflag: tar.TypeDir, Mode: 0o700}
		}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, entry[1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func deflated(t *testing.T, content []byte, with func(io.Writer) io.WriteCloser) []byte {
	t.Helper()
	var out bytes.Buffer
	w := with(&out)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func gzipped(t *testing.T, content []byte) []byte {
	t.Helper()
	return deflated(t, content, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
}

func zstandard(t *testing.T, content []byte) []byte {
	t.Helper()
	return deflated(t, content, func(w io.Writer) io.WriteCloser {
		z, err := zstd.NewWriter(w)
		if err != nil {
			t.Fatal(err)
		}
		return z
	})
}

// fetched returns a directory with fetched layers.
func fetched(t *testing.T, layers [][]byte) (*os.Root, string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, layersDir), dirMode); err != nil {
		t.Fatal(err)
	}
	for i, content := range layers {
		if err := os.WriteFile(filepath.Join(dir, layersDir, fmt.Sprintf("%04d-x.tar", i)), content, fileMode); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root, dir
}

// files returns the files in a directory by name, without the layers themselves.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if entry != nil && entry.Name() == layersDir {
				return filepath.SkipDir
			}
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		found[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestUnpack(t *testing.T) {
	type entry = [2]string
	config, weights := entry{"data/adapter_config.json", "{}"}, entry{"data/adapter_model.safetensors", "weights"}
	both := map[string]string{"adapter_config.json": "{}", "adapter_model.safetensors": "weights"}
	for _, tc := range []struct {
		reason string
		layers [][]byte
		want   map[string]string
	}{
		{"content under /data, as KAITO's images have it", [][]byte{gzipped(t, archive(t, entry{"data/", ""}, config, weights))}, both},
		{"over two layers, beside a program", [][]byte{
			gzipped(t, archive(t, entry{"bin/sh", "program"}, config)), zstandard(t, archive(t, weights)),
		}, both},
		{"a plain archive", [][]byte{archive(t, config, weights)}, both},
		{"names that begin with a dot or a slash", [][]byte{archive(t, entry{"./data/adapter_config.json", "{}"}, entry{"/data/adapter_model.safetensors", "weights"})}, both},
		{"no /data", [][]byte{archive(t, entry{"a", "1"}, entry{"sub/b", "2"})}, map[string]string{"a": "1", "sub/b": "2"}},
		{"a later layer replaces a file", [][]byte{archive(t, entry{"a", "1"}), archive(t, entry{"a", "2"})}, map[string]string{"a": "2"}},
		{
			"names that lead out, links and deletions",
			[][]byte{archive(t,
				entry{"../../outside", "1"}, entry{"link@", "/etc/passwd"}, entry{"a", "1"}, entry{".wh.a", ""}, entry{".layers/x.tar", "1"})},
			map[string]string{"a": "1", "outside": "1"},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			root, dir := fetched(t, tc.layers)
			for range 2 {
				if err := Unpack(root, dir, roomy); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, files(t, dir)); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			}
		})
	}
}

// Leftovers of an interrupted try do not matter, and the files of another image are replaced.
func TestUnpackAgain(t *testing.T) {
	root, dir := fetched(t, [][]byte{archive(t, [2]string{"data/sub/a", "new"})})
	for name, content := range map[string]string{stagingDir + "/data/half": "x", "sub/old": "x", unpackedName: "another"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), dirMode); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), fileMode); err != nil {
			t.Fatal(err)
		}
	}
	if err := Unpack(root, dir, roomy); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"sub/a": "new"}, files(t, dir)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// roomy is more than any archive here has.
var roomy = Limits{Bytes: 1 << 30, Entries: 1000}

// A small archive can contain more than fits on the disk.
func TestUnpackIsBounded(t *testing.T) {
	zeros := make([]byte, 64<<20)
	many := make([][2]string, 101)
	for i := range many {
		many[i] = [2]string{fmt.Sprintf("data/%d", i), ""}
	}
	small := Limits{Bytes: 1 << 20, Entries: 100}
	for _, tc := range []struct {
		reason string
		layers [][]byte
		limits Limits
		want   *LimitError
	}{
		{"zeros that gzip shrinks", [][]byte{gzipped(t, archive(t, [2]string{"data/a", string(zeros)}))}, small, &LimitError{"0000-x.tar", 1 << 20, "bytes"}},
		{"zeros that zstd shrinks", [][]byte{zstandard(t, archive(t, [2]string{"data/a", string(zeros)}))}, small, &LimitError{"0000-x.tar", 1 << 20, "bytes"}},
		{"zeros in what is not kept", [][]byte{gzipped(t, archive(t, [2]string{".wh.a", string(zeros)}))}, small, &LimitError{"0000-x.tar", 1 << 20, "bytes"}},
		{
			"layers that pass one by one",
			[][]byte{archive(t, [2]string{"a", string(zeros[:600<<10])}), archive(t, [2]string{"a", string(zeros[:600<<10])})},
			small, &LimitError{"0001-x.tar", 1 << 20, "bytes"},
		},
		{"too many files", [][]byte{archive(t, many...)}, small, &LimitError{"0000-x.tar", 100, "entries"}},
		{"links count, too", [][]byte{archive(t, slices.Repeat([][2]string{{"a@", "b"}}, 101)...)}, small, &LimitError{"0000-x.tar", 100, "entries"}},
		{"one file in many directories", [][]byte{archive(t, [2]string{strings.Repeat("a/", 101) + "b", ""})}, small, &LimitError{"0000-x.tar", 100, "entries"}},
		{"just enough", [][]byte{archive(t, many[:99]...)}, small, nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			root, dir := fetched(t, tc.layers)
			err := Unpack(root, dir, tc.limits)
			if tc.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			got, _ := errors.AsType[*LimitError](err)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Unpack() error (-want +got):\n%s", diff)
			}
			if left := files(t, dir); len(left) > 0 {
				t.Errorf("files are left: %d", len(left))
			}
		})
	}
}

func TestUnpackRefuses(t *testing.T) {
	whole := gzipped(t, archive(t, [2]string{"data/a", strings.Repeat("x", 4096)}))
	for _, tc := range []struct {
		reason string
		layers [][]byte
	}{
		{"half an archive", [][]byte{whole[:len(whole)/2]}},
		{"no archive", [][]byte{[]byte(strings.Repeat("text", 1000))}},
		{"no files", [][]byte{archive(t)}},
		{"a path that is too long", [][]byte{archive(t, [2]string{strings.Repeat("a/", maxName/2) + "b", ""})}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			root, dir := fetched(t, tc.layers)
			if err := Unpack(root, dir, roomy); err == nil {
				t.Errorf("no error; files %v", files(t, dir))
			}
		})
	}
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := Unpack(root, dir, roomy); err != nil || len(files(t, dir)) > 0 {
		t.Errorf("Unpack() = %v without layers, want nothing", err)
	}
}

func TestIsArchive(t *testing.T) {
	title := map[string]string{titleAnnotation: "model.gguf"}
	for _, tc := range []struct {
		reason string
		layer  v1.Descriptor
		want   bool
	}{
		{"Docker's", v1.Descriptor{MediaType: types.DockerLayer}, true},
		{"OCI's", v1.Descriptor{MediaType: types.OCILayer}, true},
		{"OCI's, with zstd", v1.Descriptor{MediaType: types.OCILayerZStd}, true},
		{"a file that is called a layer", v1.Descriptor{MediaType: types.OCILayer, Annotations: title}, false},
		{"something else", v1.Descriptor{MediaType: "application/octet-stream"}, false},
		{"a directory that ORAS packed", v1.Descriptor{MediaType: types.OCILayer, Annotations: map[string]string{
			titleAnnotation: "data", unpackAnnotation: "true",
		}}, true},
	} {
		if got := isArchive(tc.layer); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.reason, got, tc.want)
		}
	}
}
