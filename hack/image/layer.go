// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"sort"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// tree is the content of a layer by path, without a leading slash.
type tree map[string]node

type node struct {
	header tar.Header
	data   []byte
}

const (
	modeDir    = 0o755
	modeFile   = 0o644
	modeBinary = 0o755
	modeSticky = 0o1777
)

func (t tree) dir(p string, mode int64) {
	t.parents(p)
	t[p] = node{header: tar.Header{Typeflag: tar.TypeDir, Mode: mode}}
}

func (t tree) file(p string, mode int64, data []byte) {
	t.parents(p)
	t[p] = node{header: tar.Header{Typeflag: tar.TypeReg, Mode: mode}, data: data}
}

func (t tree) link(p, to string) {
	t.parents(p)
	t[p] = node{header: tar.Header{Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: to}}
}

// parents adds the parent directories of p.
func (t tree) parents(p string) {
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if _, ok := t[dir]; !ok {
			t[dir] = node{header: tar.Header{Typeflag: tar.TypeDir, Mode: modeDir}}
		}
	}
}

// users adds the files with the names of root and the image's own user.
func (t tree) users(user int) {
	passwd, group := "root:x:0:0:root:/root:/sbin/nologin\n", "root:x:0:\n"
	if user != 0 {
		passwd += fmt.Sprintf("nonroot:x:%d:%d:nonroot:/tmp:/sbin/nologin\n", user, user)
		group += fmt.Sprintf("nonroot:x:%d:\n", user)
	}
	t.file("etc/passwd", modeFile, []byte(passwd))
	t.file("etc/group", modeFile, []byte(group))
}

// layer returns the tree as a layer. It writes the files in the order of their paths, owned by root and without times,
// so that the same content gives the same layer.
func (t tree) layer() (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	paths := make([]string, 0, len(t))
	for p := range t {
		paths = append(paths, p)
	}
	sort.Strings(paths)
	for _, p := range paths {
		if err := t.write(w, p); err != nil {
			return nil, fmt.Errorf("writing %q: %w", p, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("ending the layer: %w", err)
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	return tarball.LayerFromOpener(opener,
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestSpeed))
}

func (t tree) write(w *tar.Writer, p string) error {
	n := t[p]
	header := tar.Header{
		// No program in an image may gain privileges, so this drops set-id bits.
		Typeflag: n.header.Typeflag, Name: p, Linkname: n.header.Linkname, Mode: n.header.Mode & modeSticky,
		Size: int64(len(n.data)), ModTime: created(), Format: tar.FormatPAX,
	}
	if header.Typeflag == tar.TypeDir {
		header.Name = strings.TrimSuffix(p, "/") + "/"
	}
	if err := w.WriteHeader(&header); err != nil {
		return err
	}
	_, err := w.Write(n.data)
	return err
}
