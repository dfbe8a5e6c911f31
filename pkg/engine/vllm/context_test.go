// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package vllm_test

import (
	"slices"
	"testing"

	"github.com/modelberth/modelberth/pkg/engine/vllm"
)

// The plan sets the number of GPUs that share the KV cache's tokens. A plan of an earlier version leaves it to the
// user.
func TestContextParallelIsThePlans(t *testing.T) {
	_, data := presetCatalog(t)
	for _, tc := range []struct {
		reason  string
		planned int
		want    string
	}{
		{"the plan's number", 2, "2"},
		{"none where the plan replaced it by one", 1, ""},
		{"the user's where the plan says nothing", 0, "4"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := input(data)
			in.Plan.ContextParallel = tc.planned
			in.Args = map[string]string{"dcp": "4"}
			command, err := vllm.Command(in)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if at := slices.Index(command.Args, "--decode-context-parallel-size"); at >= 0 {
				got = command.Args[at+1]
			}
			if got != tc.want {
				t.Errorf("%q, want %q in %q", got, tc.want, command.Args)
			}
		})
	}
}
