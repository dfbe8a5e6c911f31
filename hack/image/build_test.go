// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func TestBuild(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image.tar")
	must(t, "build", "--binary", staticBinary(t), "--entrypoint", "pause", "--tag", testTag, "--out", out,
		"--platform", "linux/arm64", "--ca-certs", file(t, "CA"), "--file", file(t, "X")+"=/etc/x/y",
		"--label", "b=2", "--label", "a=1", "--env", "HOME=/tmp", "--entrypoint-arg", "zero", "--arg", "one", "--arg", "two")
	want := map[string]string{
		"etc": "drwxr-xr-x ", "etc/ssl": "drwxr-xr-x ", "etc/ssl/certs": "drwxr-xr-x ", "etc/x": "drwxr-xr-x ",
		"etc/group":                         "-rw-r--r-- root:x:0:\nnonroot:x:65532:\n",
		"etc/passwd":                        "-rw-r--r-- root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n",
		"etc/ssl/certs/ca-certificates.crt": "-rw-r--r-- CA",
		"etc/x/y":                           "-rw-r--r-- X",
		"pause":                             "-rwxr-xr-x long",
		"tmp":                               "dtrwxrwxrwx ",
	}
	if diff := cmp.Diff(want, listing(t, out)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	c := config(t, out)
	wantConfig := v1.Config{
		User: "65532:65532", Entrypoint: []string{"/pause", "zero"}, Cmd: []string{"one", "two"}, WorkingDir: "/",
		Env: []string{"HOME=/tmp", "PATH=/usr/local/bin:/usr/bin:/bin"}, Labels: map[string]string{"a": "1", "b": "2"},
	}
	if diff := cmp.Diff(wantConfig, c.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if c.OS != "linux" || c.Architecture != "arm64" || !c.Created.Equal(time.Unix(0, 0)) {
		t.Errorf("image is for %s/%s of %s, want linux/arm64 of no time", c.OS, c.Architecture, c.Created)
	}
}

func TestSameInputSameBytes(t *testing.T) {
	binary, ca := staticBinary(t), file(t, "CA")
	dir := t.TempDir()
	var images [2][]byte
	for i, name := range []string{"one.tar", "two.tar"} {
		out := filepath.Join(dir, name)
		must(t, "build", "--binary", binary, "--entrypoint", "x", "--ca-certs", ca, "--tag", testTag, "--out", out)
		var err error
		if images[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
		// The present time and the times of the files must not matter.
		if err := os.Chtimes(binary, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(images[0], images[1]) {
		t.Error("two builds of the same input differ")
	}
}

// rootfsTar returns a small distribution in the form of mmdebstrap's output.
func rootfsTar(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	now := time.Now()
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "./dev/", Mode: 0o755},
		{Typeflag: tar.TypeChar, Name: "./dev/null", Mode: 0o666},
		{Typeflag: tar.TypeDir, Name: "./usr/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "./usr/bin/tool", Mode: 0o4755, Uid: 7, Gid: 8},
		{Typeflag: tar.TypeLink, Name: "./usr/bin/other", Linkname: "./usr/bin/tool"},
		{Typeflag: tar.TypeSymlink, Name: "./usr/lib/x.so", Linkname: "x.so.1"},
		{Typeflag: tar.TypeReg, Name: "./usr/share/doc/a/copyright", Mode: 0o644},
		{Typeflag: tar.TypeReg, Name: "./usr/share/doc/a/README", Mode: 0o644},
		{Typeflag: tar.TypeReg, Name: "./usr/share/ca/2.crt", Mode: 0o644},
		{Typeflag: tar.TypeReg, Name: "./usr/share/ca/1.crt", Mode: 0o644},
		{Typeflag: tar.TypeReg, Name: "./etc/apt/sources.list", Mode: 0o644},
	} {
		h.ModTime = now
		content := ""
		if h.Typeflag == tar.TypeReg {
			content = filepath.Base(h.Name)
		}
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file(t, b.String())
}

func TestRootfs(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image.tar")
	must(t, "rootfs", "--tar", rootfsTar(t), "--entrypoint", "/usr/bin/tool", "--tag", testTag, "--out", out,
		"--bundle", "usr/share/ca=etc/ssl/ca.crt", "--drop", "usr/share/ca", "--drop", "etc/apt",
		"--drop", "usr/share/doc/*/*", "--keep", "usr/share/doc/*/copyright")
	dir := "drwxr-xr-x "
	want := map[string]string{
		"bin": "Lrwxrwxrwx usr/bin", "lib": "Lrwxrwxrwx usr/lib",
		"dev": dir, "etc": dir, "etc/ssl": dir, "proc": dir, "root": dir, "run": dir, "sys": dir, "tmp": "dtrwxrwxrwx ",
		"usr": dir, "usr/bin": dir, "usr/lib": dir, "usr/share": dir, "usr/share/doc": dir, "usr/share/doc/a": dir,
		"etc/group":                 "-rw-r--r-- root:x:0:\nnonroot:x:65532:\n",
		"etc/nsswitch.conf":         "-rw-r--r-- passwd: files\ngroup: files\nhosts: files dns\n",
		"etc/passwd":                "-rw-r--r-- root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n",
		"etc/ssl/ca.crt":            "-rw-r--r-- 1.crt2.crt",
		"usr/bin/tool":              "-rwxr-xr-x tool",
		"usr/bin/other":             "-rwxr-xr-x tool",
		"usr/lib/x.so":              "Lrwxrwxrwx x.so.1",
		"usr/share/doc/a/copyright": "-rw-r--r-- copyright",
	}
	if diff := cmp.Diff(want, listing(t, out)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}
