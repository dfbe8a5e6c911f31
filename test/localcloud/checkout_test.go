// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckout(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tree, link := filepath.Join(base, "tree"), filepath.Join(base, "link")
	nested := filepath.Join(tree, "test", "localcloud")
	if err := os.MkdirAll(nested, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		filepath.Join(base, "go.mod"):   "module example.com/other\n",
		filepath.Join(tree, "go.mod"):   module + "\ngo 1.26\n",
		filepath.Join(nested, "go.mod"): strings.TrimSpace(module) + "/test/localcloud\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(tree, link); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ reason, dir, want string }{
		{"the top of the tree", tree, tree},
		{"a module of its own inside the tree", nested, tree},
		{"the tree by another name", filepath.Join(link, "test"), tree},
		{"another project around it", base, ""},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got, err := checkout(test.dir)
			if got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("checkout(%s) = %q, %v, want %q", test.dir, got, err, test.want)
			}
			if err != nil && !strings.Contains(err.Error(), "give --state-dir") {
				t.Errorf("%v: want that it names the flag", err)
			}
		})
	}
}
