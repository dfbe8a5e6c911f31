// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command modelberth-router serves all models at one OpenAI-compatible address.
package main

import (
	"os"

	"github.com/modelberth/modelberth/pkg/router/run"
)

func main() {
	os.Exit(run.Main(os.Args[1:], os.Stderr))
}
