// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command modelberth-agent runs beside an inference engine and fetches its
// model's files, watches the group that it belongs to, and holds its end back until answers are finished. See
// package agent for what it decides.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/modelberth/modelberth/pkg/agent"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return agent.Main(ctx, os.Args[1:], os.Getenv, os.Stderr)
}
