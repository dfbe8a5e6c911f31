// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package vllm_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/engine/vllm"
)

// TestLiveAdapters: a server with routes for adapters listens only on the loopback interface, and its command does not
// depend on the adapters.
func TestLiveAdapters(t *testing.T) {
	_, data := presetCatalog(t)
	const variable = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
	served := start + " --tensor-parallel-size 2" + fits + " --enable-lora --max-loras 2 --max-lora-rank 64" + end
	served = strings.NewReplacer("--host 0.0.0.0", "--host 127.0.0.1", "--port 5000", "--port 5001").Replace(served)
	in := withAdapters(input(data))
	in.LoopbackPort = 5001
	in.Args = map[string]string{"api-server-count": "2"}
	in.Env = []engine.EnvVar{{Name: variable, Value: "0"}}
	some, err := vllm.Command(in)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Fields(served), some.Args); diff != "" {
		t.Errorf("args: -want +got:\n%s", diff)
	}
	if !slices.Contains(some.Env, engine.EnvVar{Name: variable, Value: "1"}) || slices.Contains(some.Env, in.Env[0]) || some.LoopbackPort != 5001 || len(some.AdapterNames) > 0 {
		t.Errorf("environment %v, port %d, names %v", some.Env, some.LoopbackPort, some.AdapterNames)
	}
	if len(some.Warnings) != 2 || !strings.Contains(strings.Join(some.Warnings, "; "), "api-server-count: 1 is used") {
		t.Errorf("warnings %q", some.Warnings)
	}
	in.Adapters = nil
	none, err := vllm.Command(in)
	if diff := cmp.Diff(some, none); diff != "" || err != nil {
		t.Errorf("%v; the command depends on the adapters (-some +none):\n%s", err, diff)
	}
	in.LoopbackPort = 0
	closed, err := vllm.Command(in)
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(closed.Env, func(v engine.EnvVar) bool { return v.Name == variable }) {
		t.Errorf("clients could load adapters: %v", closed.Env)
	}
}
