// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release builds all files of a release, without a container engine: images for several architectures, the
// chart, the command line for each platform, a manifest for krew, software bills of materials, checksums, provenance
// and signatures, and one bundle for clusters without internet. The same commit gives the same bytes. It publishes
// nothing: kubectl berth mirror sends a bundle to a registry.
package main

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// settings decide the content of a release, together with the commit.
type settings struct {
	// top is the root of the source tree, out the output directory, and images the directory with NAME-ARCH.tar.
	top, out, images string
	// version is for the chart and the images, without a leading v.
	version string
	// registry is the images' future registry: HOST/PATH.
	registry string
	// download is the archives' future URL prefix.
	download string
	commit   string
	key      *ecdsa.PrivateKey
}

func run(ctx context.Context, args []string, out io.Writer) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	if s.commit, err = head(ctx, s.top); err != nil {
		return err
	}
	if err := os.RemoveAll(s.out); err != nil {
		return err
	}
	r := &release{settings: s}
	steps := []struct {
		name string
		run  func(context.Context) error
	}{
		{"command line", r.commandLines},
		{"krew manifest", r.krew},
		{"images", r.addImages},
		{"chart", r.addChart},
		{"bills of materials", r.bills},
		{"bundle", r.bundle},
		{"provenance", r.provenance},
		{"checksums", r.checksums},
	}
	for _, step := range steps {
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return r.report(out)
}

func parse(args []string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&s.top, "top", ".", "root of the source tree")
	flags.StringVar(&s.out, "out", "dist", "directory to fill; its content is deleted first")
	flags.StringVar(&s.images, "images", "", "directory with the images from hack/images.sh")
	flags.StringVar(&s.version, "version", "", "version of the release, such as 0.1.0")
	flags.StringVar(&s.registry, "registry", "", "registry and path from which clusters pull the images, such as registry.example/modelberth")
	flags.StringVar(&s.download, "download", "", "URL of the directory with the archives, for krew's manifest; without one, there is no manifest")
	key := flags.String("key", "", "ECDSA key in PEM to sign with; without one, nothing is signed")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	s.version = strings.TrimPrefix(s.version, "v")
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q: every value belongs to a flag", flags.Arg(0))
	case s.images == "" || s.version == "" || s.registry == "":
		return s, errors.New("-images, -version and -registry are required")
	}
	for _, dir := range []*string{&s.top, &s.out, &s.images} {
		absolute, err := filepath.Abs(*dir)
		if err != nil {
			return s, err
		}
		*dir = absolute
	}
	var err error
	if *key != "" {
		s.key, err = readKey(*key)
	}
	return s, err
}
