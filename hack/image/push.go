// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func pushFlags(command string, args []string) ([]string, []name.Option, error) {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	insecure := flags.Bool("insecure", false, "speak plain HTTP to the registry")
	if err := flags.Parse(args); err != nil {
		return nil, nil, err
	}
	if *insecure {
		return flags.Args(), []name.Option{name.Insecure}, nil
	}
	return flags.Args(), nil, nil
}

func remoteOptions(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}

// push sends one image. The bytes of its manifest, and thereby its digest, stay the same.
func push(ctx context.Context, args []string, out io.Writer) (err error) {
	args, options, err := pushFlags("push", args)
	if err != nil {
		return err
	}
	if len(args) != 2 {
		return errors.New("usage: image push [--insecure] TAR REF")
	}
	ref, err := name.ParseReference(args[1], options...)
	if err != nil {
		return fmt.Errorf("reference %q: %w", args[1], err)
	}
	img, remove, err := load(args[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := remote.Write(ref, img, remoteOptions(ctx)...); err != nil {
		return fmt.Errorf("pushing %s: %w", ref, err)
	}
	return printDigest(out, ref.Context().Name(), img)
}

// pushIndex sends several images, and an index of the images by platform.
func pushIndex(ctx context.Context, args []string, out io.Writer) (err error) {
	args, options, err := pushFlags("index", args)
	if err != nil {
		return err
	}
	if len(args) < 2 {
		return errors.New("usage: image index [--insecure] REF TAR [TAR...]")
	}
	ref, err := name.ParseReference(args[0], options...)
	if err != nil {
		return fmt.Errorf("reference %q: %w", args[0], err)
	}
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return fmt.Errorf("creating a temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for i, from := range args[1:] {
		addendum, err := forPlatform(filepath.Join(dir, strconv.Itoa(i)), from)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, addendum)
	}
	if err := remote.WriteIndex(ref, index, remoteOptions(ctx)...); err != nil {
		return fmt.Errorf("pushing %s: %w", ref, err)
	}
	return printDigest(out, ref.Context().Name(), index)
}

func forPlatform(dir, from string) (mutate.IndexAddendum, error) {
	if err := os.Mkdir(dir, modeDir); err != nil {
		return mutate.IndexAddendum{}, fmt.Errorf("unpacking %s: %w", from, err)
	}
	img, err := loadInto(dir, from)
	if err != nil {
		return mutate.IndexAddendum{}, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return mutate.IndexAddendum{}, fmt.Errorf("reading %s: %w", from, err)
	}
	return mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: file.Platform()}}, nil
}

func digest(args []string, out io.Writer) (err error) {
	if len(args) != 1 {
		return errors.New("usage: image digest TAR")
	}
	img, remove, err := load(args[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	hash, err := img.Digest()
	if err != nil {
		return fmt.Errorf("computing the digest of %s: %w", args[0], err)
	}
	_, err = fmt.Fprintln(out, hash)
	return err
}

func printDigest(out io.Writer, repository string, of interface{ Digest() (v1.Hash, error) }) error {
	hash, err := of.Digest()
	if err != nil {
		return fmt.Errorf("computing the digest of the pushed image: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s@%s\n", repository, hash)
	return err
}
