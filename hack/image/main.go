// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image makes container images without a container engine: from static binaries, or from the root file system
// of a distribution. The same input gives the same image, bit by bit. It contains nothing of the building machine.
//
// It writes an image as an OCI image layout in a tar. containerd can import the tar, and "image push" can send it to a
// registry.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

const usage = `usage:
  image build  --binary PATH --entrypoint NAME --tag REF --out TAR [flags]     make an image from a static binary
  image rootfs --tar ROOTFS.tar --entrypoint PATH --tag REF --out TAR [flags]  make an image from a root file system
  image push   [--insecure] TAR REF                                            push an image to a registry
  image index  [--insecure] REF TAR [TAR...]                                   push images of several platforms as one
  image digest TAR                                                             print the digest of an image
`

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := dispatch(ctx, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "image:", err)
		return 1
	}
	return 0
}

func dispatch(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("no command: see image help")
	}
	switch args[0] {
	case "build":
		return build(args[1:], out)
	case "rootfs":
		return rootfs(args[1:], out)
	case "push":
		return push(ctx, args[1:], out)
	case "index":
		return pushIndex(ctx, args[1:], out)
	case "digest":
		return digest(args[1:], out)
	case "help", "-h", "--help":
		fmt.Fprint(out, usage)
		return nil
	}
	return fmt.Errorf("unknown command %q: see image help", args[0])
}

// list is a repeatable flag.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

func (l *list) Set(v string) error {
	*l = append(*l, v)
	return nil
}

// pairs parses a list of KEY=VALUE.
func (l *list) pairs(flag string) (map[string]string, error) {
	out := map[string]string{}
	for _, v := range *l {
		key, value, found := strings.Cut(v, "=")
		if !found || key == "" {
			return nil, fmt.Errorf("--%s %q is not of the form KEY=VALUE", flag, v)
		}
		out[key] = value
	}
	return out, nil
}
