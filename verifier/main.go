// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	socket := flag.String("socket", "/run/modelberth-verifier/verifier.sock", "Unix socket to listen on")
	trusted := flag.String("trusted-root", "/etc/modelberth/trusted-root/trusted_root.json",
		"roots of trust in Sigstore's format, read for each request")
	flag.Parse()
	// An unusable file fails the start, not the first Workspace.
	if _, err := readTrustedRoot(*trusted); err != nil {
		return err
	}
	// A former run's socket would be in the way.
	if err := os.Remove(*socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the old socket: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", *socket)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	s := &server{log: slog.New(slog.NewJSONHandler(os.Stderr, nil)), trustedRoot: *trusted}
	return s.serve(ctx, listener)
}
