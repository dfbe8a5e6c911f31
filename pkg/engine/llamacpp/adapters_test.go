// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package llamacpp_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/engine/llamacpp"
)

func TestAdapters(t *testing.T) {
	const unlisted = "inference.adapters: engine llamacpp applies all adapters to each request, unless the request selects some with its field lora, " +
		"and does not list them in /v1/models"
	for _, tc := range []struct {
		reason   string
		adapters []engine.Adapter
		want     string
	}{
		{
			"as they were trained",
			[]engine.Adapter{{Name: "a", Dir: "/mnt/adapter/a", Path: "a.gguf", Strength: 1}, {Name: "b", Dir: "/mnt/adapter/b", Path: "x/b.gguf", Strength: 1}},
			"--lora /mnt/adapter/a/a.gguf,/mnt/adapter/b/x/b.gguf",
		},
		{
			"scaled",
			[]engine.Adapter{{Name: "a", Dir: "/mnt/adapter/a", Path: "a.gguf", Strength: 0.25}, {Name: "b", Dir: "/mnt/adapter/b", Path: "b.gguf", Strength: 1}},
			"--lora-scaled /mnt/adapter/a/a.gguf:0.25,/mnt/adapter/b/b.gguf:1",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := input(preset(t), 1)
			in.Adapters = tc.adapters
			got, err := llamacpp.Command(in)
			if err != nil {
				t.Fatal(err)
			}
			if args := strings.Join(got.Args, " "); !strings.Contains(args, " --fit off "+tc.want+" --metrics") {
				t.Errorf("%s lacks %s", args, tc.want)
			}
			if diff := cmp.Diff([]string{unlisted}, got.Warnings); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if len(got.AdapterNames) > 0 {
				t.Errorf("the endpoint is said to answer to %v", got.AdapterNames)
			}
		})
	}
}

func TestAdapterNeedsItsFile(t *testing.T) {
	in := input(preset(t), 1)
	in.Adapters = []engine.Adapter{{Name: "a", Dir: "/mnt/adapter/a", Strength: 1}}
	const want = "inference.adapters: engine llamacpp loads a from one GGUF file: name that file in path, such as adapter.gguf"
	if _, err := llamacpp.Command(in); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
