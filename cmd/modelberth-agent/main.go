// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command modelberth-agent runs beside an inference engine. It fetches the model's files, watches the other members
// of its group, and delays the engine's end until its requests are finished. See package agent for its decisions.
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
