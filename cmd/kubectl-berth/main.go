// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-berth plans, explains and operates Workspaces. kubectl finds it by its name: kubectl
// berth plan ….
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // schedules use time zones, and not every machine has their files

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/modelberth/modelberth/pkg/cli"
	"github.com/modelberth/modelberth/pkg/options"
)

func main() {
	os.Exit(run())
}

// run lets Ctrl-C end the process at once, unless a command handles it.
func run() int {
	klog.SetLogger(logr.Discard()) // the commands report each error once, in their own words
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return cli.Main(ctx, os.Args[1:], cli.Process(os.Stdin, os.Stdout, os.Stderr, os.Getenv, options.Effective))
}
