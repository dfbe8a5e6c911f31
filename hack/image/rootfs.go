// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"sort"
	"strings"
)

// rootfs makes an image of a distribution's root file system.
func rootfs(args []string, out io.Writer) error {
	var (
		s          spec
		source     string
		drop, keep list
		bundles    list
	)
	flags := flag.NewFlagSet("rootfs", flag.ContinueOnError)
	s.register(flags)
	flags.StringVar(&source, "tar", "", "root file system")
	flags.Var(&drop, "drop", "pattern of files and directories to leave out, with all below them; repeat for more")
	flags.Var(&keep, "keep", "pattern of paths to keep, even if --drop matches them; repeat for more")
	flags.Var(&bundles, "bundle", "DIR=FILE: join the files of a directory into one; repeat for more")
	if err := s.parse(flags, args); err != nil {
		return err
	}
	t, err := readTree(source)
	if err != nil {
		return err
	}
	if err := t.bundle(bundles); err != nil {
		return err
	}
	if err := t.drop(drop, keep); err != nil {
		return err
	}
	t.furnish(s.user)
	if _, ok := t[strings.TrimPrefix(s.entrypoint, "/")]; !ok {
		return fmt.Errorf("--entrypoint %q is not in %s", s.entrypoint, source)
	}
	layer, err := t.layer()
	if err != nil {
		return err
	}
	img, err := s.image(layer)
	if err != nil {
		return err
	}
	return save(img, s.tag, s.out, out)
}

// readTree reads files, directories and links. It skips devices, because a container gets its own, and unprivileged
// runtimes cannot create them.
func readTree(source string) (tree, error) {
	f, err := os.Open(source)
	if err != nil {
		return nil, fmt.Errorf("opening the root file system: %w", err)
	}
	defer func() { _ = f.Close() }()
	t := tree{}
	archive := tar.NewReader(f)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", source, err)
		}
		if err := t.take(header, archive); err != nil {
			return nil, fmt.Errorf("reading %s: %q: %w", source, header.Name, err)
		}
	}
}

func (t tree) take(header *tar.Header, content io.Reader) error {
	p := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
	if p == "" || p == "dev" || strings.HasPrefix(p, "dev/") {
		return nil
	}
	switch header.Typeflag {
	case tar.TypeDir:
		t.dir(p, header.Mode)
	case tar.TypeSymlink:
		t.link(p, header.Linkname)
	case tar.TypeLink:
		// This copies the file, because readers of the image may extract the files in any order.
		to := strings.TrimPrefix(path.Clean("/"+header.Linkname), "/")
		original, ok := t[to]
		if !ok {
			return fmt.Errorf("a hard link to %q, which no earlier entry has", header.Linkname)
		}
		t.parents(p)
		t[p] = original
	case tar.TypeReg:
		data, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		t.file(p, header.Mode, data)
	default:
		return fmt.Errorf("an image cannot have an entry of type %q", header.Typeflag)
	}
	return nil
}

// bundle concatenates files in the order of their names, as packages' scripts do with certificates.
func (t tree) bundle(bundles list) error {
	for _, b := range bundles {
		dir, file, found := strings.Cut(b, "=")
		if !found {
			return fmt.Errorf("--bundle %q is not of the form DIR=FILE", b)
		}
		var parts []string
		for p, n := range t {
			if n.header.Typeflag == tar.TypeReg && path.Dir(p) == dir {
				parts = append(parts, p)
			}
		}
		if len(parts) == 0 {
			return fmt.Errorf("--bundle %q: there is no file in that directory", b)
		}
		sort.Strings(parts)
		var joined []byte
		for _, p := range parts {
			joined = append(joined, t[p].data...)
		}
		t.file(file, modeFile, joined)
	}
	return nil
}

// drop removes the paths that match patterns, except those that match keep.
func (t tree) drop(patterns, keep list) error {
	var gone []string
	for p := range t {
		dropped, err := below(patterns, p)
		if err != nil {
			return err
		}
		kept, err := below(keep, p)
		if err != nil {
			return err
		}
		if dropped && !kept {
			gone = append(gone, p)
		}
	}
	for _, p := range gone {
		delete(t, p)
	}
	for p := range maps.Clone(t) {
		t.parents(p) // restores the directories of kept files
	}
	return nil
}

// below reports whether a path or one of its parents matches a pattern.
func below(patterns list, p string) (bool, error) {
	for ; p != "."; p = path.Dir(p) {
		for _, pattern := range patterns {
			matched, err := path.Match(pattern, p)
			if err != nil {
				return false, fmt.Errorf("pattern %q: %w", pattern, err)
			}
			if matched {
				return true, nil
			}
		}
	}
	return false, nil
}

// furnish adds what packages expect but do not contain: merged /usr, mount points, users.
func (t tree) furnish(user int) {
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		if _, there := t[dir]; there {
			continue
		}
		if _, merged := t["usr/"+dir]; merged {
			t.link(dir, "usr/"+dir)
		}
	}
	for _, dir := range []string{"dev", "proc", "sys", "run", "root"} {
		if _, there := t[dir]; !there {
			t.dir(dir, modeDir)
		}
	}
	t.dir("tmp", modeSticky)
	t.users(user)
	// Without this file, glibc queries DNS before /etc/hosts, which has a pod's own name and aliases.
	t.file("etc/nsswitch.conf", modeFile, []byte("passwd: files\ngroup: files\nhosts: files dns\n"))
}
