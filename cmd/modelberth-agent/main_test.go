// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The agent runs beside every engine, and every new machine pulls it. So it must not contain the large Kubernetes
// client.
func TestStaysSmall(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-buildvcs=false", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("listing dependencies: %v", err)
	}
	allowed := []string{
		"github.com/modelberth/modelberth/cmd/modelberth-agent",
		"github.com/modelberth/modelberth/pkg/agent",
		"github.com/modelberth/modelberth/pkg/agent/",
		"github.com/modelberth/modelberth/pkg/hub",
		// Packages that use only the standard library: the list of adapters, bounded reading of a hub's answers, messages on
		// one line, and URLs without signatures.
		"github.com/modelberth/modelberth/pkg/adapters",
		"github.com/modelberth/modelberth/pkg/jsonstream",
		"github.com/modelberth/modelberth/pkg/redact",
		"github.com/modelberth/modelberth/pkg/wording",
		"github.com/cenkalti/backoff/",
		// Artifacts of registries, and the readers of a pod's credentials for registries.
		"github.com/google/go-containerregistry/",
		"github.com/docker/cli/cli/config", "github.com/docker/cli/cli/config/",
		"github.com/docker/docker-credential-helpers/",
		"github.com/opencontainers/",
		"github.com/klauspost/compress", "github.com/klauspost/compress/",
		"github.com/sirupsen/logrus",
		"golang.org/x/sys/",
		"golang.org/x/sync/errgroup",
		"k8s.io/utils/clock",
	}
	for dependency := range strings.FieldsSeq(string(out)) {
		host, _, _ := strings.Cut(dependency, "/")
		if !strings.Contains(host, ".") || isAllowed(dependency, allowed) {
			continue
		}
		t.Errorf("the agent depends on %s: do without it, or add it here and say why", dependency)
	}
}

func isAllowed(dependency string, allowed []string) bool {
	for _, a := range allowed {
		if dependency == a || strings.HasSuffix(a, "/") && strings.HasPrefix(dependency, a) {
			return true
		}
	}
	return false
}
