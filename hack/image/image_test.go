// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const testTag = "registry.local:5000/modelberth/thing:dev"

// do runs a command and returns its output.
func do(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := dispatch(t.Context(), args, &out)
	return out.String(), err
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := do(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// staticBinary builds pause, a static binary.
func staticBinary(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "pause")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-trimpath", "-o", out, "./pause")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building pause: %v\n%s", err, text)
	}
	return out
}

func file(t *testing.T, content string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// listing describes the files of an image: mode, path, link or content.
func listing(t *testing.T, from string) map[string]string {
	t.Helper()
	img, remove, err := load(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	}()
	content := mutate.Extract(img)
	defer content.Close()
	out := map[string]string{}
	archive := tar.NewReader(content)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || header.ModTime.Unix() != 0 {
			t.Errorf("%s belongs to %d:%d and is of %s, want 0:0 and no time", header.Name, header.Uid, header.Gid, header.ModTime)
		}
		text := string(data)
		if len(text) > 100 {
			text = "long"
		}
		out[header.Name] = header.FileInfo().Mode().String() + " " + header.Linkname + text
	}
}

func config(t *testing.T, from string) *v1.ConfigFile {
	t.Helper()
	img, remove, err := load(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = remove() }()
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func fakeRegistry(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestPushKeepsTheDigest(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image.tar")
	must(t, "build", "--binary", staticBinary(t), "--entrypoint", "pause", "--tag", testTag, "--out", out)
	ref := fakeRegistry(t) + "/any/name:tag"
	pushed := must(t, "push", "--insecure", out, ref)
	digest := must(t, "digest", out)
	if want := strings.TrimSuffix(ref, ":tag") + "@" + digest; pushed != want {
		t.Errorf("push printed %q, want %q", pushed, want)
	}
	parsed, err := name.ParseReference(ref, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	there, err := remote.Head(parsed)
	if err != nil || there.Digest.String() != digest {
		t.Errorf("the registry has %v, %v; want %s", there, err, digest)
	}
}

func TestIndexHasEveryPlatform(t *testing.T) {
	binary, dir := staticBinary(t), t.TempDir()
	var tars []string
	for _, platform := range []string{"linux/amd64", "linux/arm64"} {
		out := filepath.Join(dir, strings.ReplaceAll(platform, "/", "-")+".tar")
		must(t, "build", "--binary", binary, "--entrypoint", "pause", "--tag", testTag, "--platform", platform, "--out", out)
		tars = append(tars, out)
	}
	ref := fakeRegistry(t) + "/any/name:tag"
	must(t, append([]string{"index", "--insecure", ref}, tars...)...)
	parsed, err := name.ParseReference(ref, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		img, err := remote.Image(parsed, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
		got, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if want := must(t, "digest", tars[i]); got.String() != want {
			t.Errorf("%s is %s, want %s", arch, got, want)
		}
	}
}

func TestRefused(t *testing.T) {
	binary := staticBinary(t)
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "image.tar")
	for _, tc := range []struct {
		reason string
		args   []string
		want   string
	}{
		{"no command", nil, "no command"},
		{"an unknown command", []string{"bake"}, `unknown command "bake"`},
		{"no tag", []string{"build", "--binary", binary, "--entrypoint", "x", "--out", out}, "--tag and --out are needed"},
		{"a bad tag", []string{"build", "--binary", binary, "--entrypoint", "x", "--tag", "A B", "--out", out}, `--tag "A B"`},
		{"a binary that needs a loader", []string{"build", "--binary", shell, "--entrypoint", "x", "--tag", testTag, "--out", out}, "is linked dynamically: build it with CGO_ENABLED=0"},
		{"no binary at all", []string{"build", "--binary", file(t, "#!/bin/sh"), "--entrypoint", "x", "--tag", testTag, "--out", out}, "is not an executable for Linux"},
		{"half a file", []string{"build", "--binary", binary, "--entrypoint", "x", "--tag", testTag, "--file", "a", "--out", out}, `--file "a" is not of the form`},
		{"half a label", []string{"build", "--binary", binary, "--entrypoint", "x", "--tag", testTag, "--label", "a", "--out", out}, `--label "a" is not of the form KEY=VALUE`},
		{"a stray argument", []string{"build", "--binary", binary, "x"}, `unexpected argument "x"`},
		{"root file system without its program", []string{"rootfs", "--tar", rootfsTar(t), "--entrypoint", "/usr/bin/none", "--tag", testTag, "--out", out}, `--entrypoint "/usr/bin/none" is not in`},
		{"a bundle of nothing", []string{"rootfs", "--tar", rootfsTar(t), "--entrypoint", "/usr/bin/tool", "--tag", testTag, "--bundle", "etc/none=etc/x", "--out", out}, "there is no file in that directory"},
		{"a bad pattern", []string{"rootfs", "--tar", rootfsTar(t), "--entrypoint", "/usr/bin/tool", "--tag", testTag, "--drop", "[", "--out", out}, `pattern "["`},
		{"pushing something else", []string{"push", file(t, "x"), "localhost/a:b"}, "unexpected EOF"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := do(t, tc.args...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("image %q = %v, want an error with %q", tc.args, err, tc.want)
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("something was written")
			}
		})
	}
}
