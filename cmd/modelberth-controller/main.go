// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command modelberth-controller is the Kubernetes controller.
package main

import (
	"os"
	_ "time/tzdata" // schedules use time zones, and the image lacks their files

	"github.com/modelberth/modelberth/pkg/app"
)

func main() {
	os.Exit(app.Main(os.Args[1:], os.Stderr))
}
