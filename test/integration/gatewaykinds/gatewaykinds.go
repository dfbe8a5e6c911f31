// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gatewaykinds finds the published definitions of the Gateway API and of its inference extension, for tests with a
// real API server.
package gatewaykinds

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Files are the files with the definitions of InferencePools and HTTPRoutes, in the modules that the code imports.
func Files(t *testing.T) []string {
	t.Helper()
	return []string{
		filepath.Join(moduleDir(t, "sigs.k8s.io/gateway-api-inference-extension"), "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml"),
		filepath.Join(moduleDir(t, "sigs.k8s.io/gateway-api"), "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"),
	}
}

// moduleDir returns the directory of a dependency.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
