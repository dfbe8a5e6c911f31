// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/presets"
)

func TestEngineOverrides(t *testing.T) {
	shipped, err := catalog.Load(presets.FS())
	if err != nil {
		t.Fatal(err)
	}
	want, _ := shipped.Engine("llamacpp")
	if want.MultiNode {
		t.Fatal("the shipped llamacpp spreads over machines already")
	}
	want.MultiNode, want.WorkerCommand = true, []string{"/bin/rpc-server", "--cache"}
	changed, err := catalog.Load(presets.FS(), overlay(`engineOverrides: [{name: llamacpp, workerCommand: [/bin/rpc-server, --cache]}]`))
	if err != nil {
		t.Fatal(err)
	}
	got, _ := changed.Engine("llamacpp")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestRefusedEngineOverrides(t *testing.T) {
	for _, tc := range []struct{ reason, text, want string }{
		{
			"an engine that is not there", `engineOverrides: [{name: nollm, workerCommand: [/bin/x]}]`,
			`catalogue file "overrides.yaml": engineOverrides: there is no engine "nollm"`,
		},
		{
			"a program that is looked for", `engineOverrides: [{name: llamacpp, workerCommand: [rpc-server]}]`,
			`catalogue file "overrides.yaml": engineOverrides[0] "llamacpp": workerCommand[0]: "rpc-server" must be the path of a program in the image`,
		},
		{
			"nothing", `engineOverrides: [{name: llamacpp}]`,
			`catalogue file "overrides.yaml": engineOverrides[0] "llamacpp": it has no effect: set workerCommand`,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if _, err := catalog.Load(presets.FS(), overlay(tc.text)); err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}
