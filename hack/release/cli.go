// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// platform is a platform of the command line, in Go's names.
type platform struct{ os, arch string }

func platforms() []platform {
	return []platform{
		{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
	}
}

// cliArchive is the command line for one platform, packed.
type cliArchive struct {
	platform

	name, sha256, binary string
}

// commandLines builds kubectl-berth for each platform and packs it with the license.
func (r *release) commandLines(ctx context.Context) error {
	license, err := os.ReadFile(filepath.Join(r.top, "LICENSE"))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, p := range platforms() {
		binary, extension, pack := "kubectl-berth", ".tar.gz", tarGzip
		if p.os == "windows" {
			binary, extension, pack = "kubectl-berth.exe", ".zip", zipped
		}
		path := filepath.Join(dir, p.os+p.arch, binary)
		if err := r.build(ctx, p, "./cmd/kubectl-berth", path); err != nil {
			return err
		}
		program, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("kubectl-berth_%s_%s_%s", r.version, p.os, p.arch)
		if err := r.bill(name, path); err != nil {
			return err
		}
		packed, err := pack([]member{{binary, program, modeDir}, {"LICENSE", license, modeFile}})
		if err != nil {
			return err
		}
		if err := r.write(name+extension, packed); err != nil {
			return err
		}
		last := r.files[len(r.files)-1]
		r.platforms = append(r.platforms, cliArchive{platform: p, name: last.name, sha256: last.sha256, binary: binary})
	}
	return nil
}

// build compiles a program with the version of the release. Go's version control stamp adds the commit.
func (r *release) build(ctx context.Context, p platform, pkg, to string) error {
	env := []string{"CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.arch}
	version := "-s -w -X github.com/modelberth/modelberth/pkg/cli.release=v" + r.version
	_, err := command(ctx, r.top, env, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags", version, "-o", to, pkg)
	return err
}

// member is a file of an archive.
type member struct {
	name string
	data []byte
	mode int64
}

func tarGzip(members []member) ([]byte, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	for _, m := range members {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: m.name, Mode: m.mode, Size: int64(len(m.data)), ModTime: epoch()}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(m.data); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func zipped(members []member) ([]byte, error) {
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for _, m := range members {
		header := &zip.FileHeader{Name: m.name, Method: zip.Deflate}
		header.SetMode(os.FileMode(m.mode)) //nolint:gosec // one of two constants
		w, err := archive.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(m.data); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// krew writes the manifest for kubectl krew install berth, with the archives.
func (r *release) krew(context.Context) error {
	if r.download == "" {
		return nil
	}
	type object = map[string]any
	var entries []object
	for _, p := range r.platforms {
		entries = append(entries, object{
			"selector": object{"matchLabels": object{"os": p.os, "arch": p.arch}},
			"uri":      r.download + "/" + p.name,
			"sha256":   p.sha256,
			"bin":      p.binary,
		})
	}
	manifest, err := yaml.Marshal(object{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   object{"name": "berth"},
		"spec": object{
			"version":          "v" + r.version,
			"shortDescription": "Plan, explain and watch Modelberth Workspaces",
			"description": "Shows which GPU machines serve a model, what they cost and why, renders the pods,\n" +
				"and follows a Workspace until its model answers.\n",
			"platforms": entries,
		},
	})
	if err != nil {
		return err
	}
	return r.write("berth.yaml", manifest)
}
