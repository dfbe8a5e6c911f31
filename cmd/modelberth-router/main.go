// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command modelberth-router is the front door: one OpenAI-compatible address for all models.
package main

import (
	"os"

	"github.com/modelberth/modelberth/pkg/router/run"
)

func main() {
	os.Exit(run.Main(os.Args[1:], os.Stderr))
}
