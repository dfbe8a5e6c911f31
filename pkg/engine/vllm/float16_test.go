// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package vllm_test

import (
	"slices"
	"testing"

	"github.com/modelberth/modelberth/pkg/engine/vllm"
	"github.com/modelberth/modelberth/pkg/model"
)

// The plan decides whether the engine converts weights, and the flag appears once.
func TestTypeIsThePlans(t *testing.T) {
	_, data := presetCatalog(t)
	for _, tc := range []struct {
		reason, capability, user string
		flags                    []model.Flag
		want                     []string
	}{
		{"bf16 as published", "8.0", "", nil, nil},
		{"converted for GPUs without bf16", "7.5", "", []model.Flag{{Name: "dtype", Value: "half", Why: "x"}}, []string{"half"}},
		{"converted because the user asks for it", "8.0", "half", []model.Flag{{Name: "dtype", Value: "half", Why: "x"}}, []string{"half"}},
		{"a plan of a former version", "7.5", "", nil, []string{"half"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := input(data)
			in.Plan.ComputeCapability, in.Plan.Artifact.Flags = tc.capability, tc.flags
			if tc.user != "" {
				in.Args = map[string]string{"dtype": tc.user}
			}
			command, err := vllm.Command(in)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, arg := range command.Args {
				if arg == "--dtype" {
					got = append(got, command.Args[i+1])
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("dtype %q, want %q", got, tc.want)
			}
			if len(command.Warnings) > 0 {
				t.Errorf("warnings %q", command.Warnings)
			}
		})
	}
}
