// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// module is the first line of the source tree's go.mod.
const module = "module github.com/modelberth/modelberth\n"

// checkout returns the source tree around dir, without symbolic links: every path to it gives the same tree.
func checkout(dir string) (string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("finding the source tree: %w", err)
	}
	for tree := dir; ; tree = filepath.Dir(tree) {
		data, err := os.ReadFile(filepath.Join(tree, "go.mod"))
		if err == nil && bytes.HasPrefix(data, []byte(module)) {
			return tree, nil
		}
		if tree == filepath.Dir(tree) {
			return "", fmt.Errorf("%s is not in the source tree of Modelberth: change to it, or give --state-dir", dir)
		}
	}
}
