// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pages reads the pages of the documentation, their fenced blocks, and the programs that their shell commands call.
//
// It decides nothing about what it reads. It must not know any page.
package pages

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// Read returns the pages of a repository, by path from its root.
func Read(root string) (map[string]string, error) {
	out := map[string]string{}
	paths := []string{"README.md", "CONTRIBUTING.md"}
	err := fs.WalkDir(os.DirFS(root), "docs", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".md" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return nil, err
		}
		out[path] = string(text)
	}
	return out, nil
}

// Block is a fenced block of a page.
type Block struct{ Page, Language, Text string }

// Blocks returns the fenced blocks of pages, in the order of the pages' paths.
func Blocks(all map[string]string) []Block {
	var out []Block
	fence := regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)\n```$")
	for _, path := range slices.Sorted(maps.Keys(all)) {
		for _, match := range fence.FindAllStringSubmatch(all[path], -1) {
			out = append(out, Block{Page: path, Language: match[1], Text: match[2]})
		}
	}
	return out
}
