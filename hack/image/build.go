// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

const caBundle = "etc/ssl/certs/ca-certificates.crt"

// build makes an image of one static binary and the files around it.
func build(args []string, out io.Writer) error {
	var (
		s               spec
		binary, caCerts string
		files           list
	)
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	s.register(flags)
	flags.StringVar(&binary, "binary", "", "static executable")
	flags.StringVar(&caCerts, "ca-certs", "", "bundle of CA certificates to include")
	flags.Var(&files, "file", "HOST=CONTAINER file to include; repeat for more")
	if err := s.parse(flags, args); err != nil {
		return err
	}
	t, err := binaryTree(s, binary, caCerts, files)
	if err != nil {
		return err
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

func binaryTree(s spec, binary, caCerts string, files list) (tree, error) {
	t := tree{}
	t.dir("tmp", modeSticky)
	t.users(s.user)
	if err := checkStatic(binary); err != nil {
		return nil, err
	}
	if err := t.copy(binary, s.entrypoint, modeBinary); err != nil {
		return nil, err
	}
	if caCerts != "" {
		if err := t.copy(caCerts, caBundle, modeFile); err != nil {
			return nil, err
		}
	}
	for _, f := range files {
		host, container, found := strings.Cut(f, "=")
		if !found {
			return nil, fmt.Errorf("--file %q is not of the form HOST=CONTAINER", f)
		}
		if err := t.copy(host, container, modeFile); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t tree) copy(host, container string, mode int64) error {
	data, err := os.ReadFile(host)
	if err != nil {
		return fmt.Errorf("reading a file for the image: %w", err)
	}
	t.file(strings.TrimPrefix(container, "/"), mode, data)
	return nil
}

// checkStatic refuses a dynamically linked binary, because the image has no loader for it.
func checkStatic(binary string) error {
	f, err := elf.Open(binary)
	if err != nil {
		return fmt.Errorf("--binary %q is not an executable for Linux: %w", binary, err)
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("--binary %q is linked dynamically: build it with CGO_ENABLED=0", binary)
		}
	}
	return nil
}
