// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/pkg/wording"
)

// FuzzManifest plans for any file. The result is plans, or errors on one line each, with an exit code.
func FuzzManifest(f *testing.F) {
	for _, pattern := range []string{"testdata/manifests/*.yaml", "../../examples/*.yaml", "../../examples/bad/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("nothing matches %s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Add([]byte("apiVersion: v1\nkind: List\nitems: [{apiVersion: kaito.sh/v1beta1, kind: Workspace, metadata: {name: a}, inference: {preset: {name: small}}}]"))
	f.Add([]byte("apiVersion: kaito.sh/v1beta1\nkind: Workspace\nmetadata: {name: a}\ninference: {preset: {name: small}, " +
		"engine: {args: {tensor-parallel-size: \"7\", max-model-len: \"99\"}}, objectives: {concurrency: 1000000, maxModelLen: 100000000}}"))
	o := &planOptions{modelResolver: modelResolver{offline: true}}
	o.base = os.DirFS("testdata/catalog")
	if err := o.open(); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseManifest("file", text)
		if err != nil {
			if strings.TrimSpace(wording.OneLine(err.Error())) == "" {
				t.Errorf("an error without words: %#v", err)
			}
			return
		}
		for _, ws := range m.workspaces {
			got, err := o.plan(t.Context(), m, ws)
			switch {
			case err != nil && (codeOf(err) < codeUsage || wording.OneLine(err.Error()) == ""):
				t.Errorf("exit code %d, %q", codeOf(err), wording.OneLine(err.Error()))
			case err == nil && got.plan.Nodes < 1:
				t.Errorf("a plan for %d machines", got.plan.Nodes)
			}
		}
	})
}
