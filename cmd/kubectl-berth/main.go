// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-berth plans and explains. kubectl finds it by its name: kubectl berth plan ….
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/modelberth/modelberth/pkg/cli"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return cli.Main(ctx, os.Args[1:], cli.Process(os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}
