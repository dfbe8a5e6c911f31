// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package args

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// vLLM's parser accepts every command line the product renders for its presets.
func TestRenderedCommandsParse(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../../../pkg/engine/vllm/testdata/*.txt", "../../../pkg/render/testdata/presets/*.txt"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("golden files %s: %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	table, err := Table()
	if err != nil {
		t.Fatal(err)
	}
	spelled := spellings(table)
	reference := regexp.MustCompile(`\$\([A-Z_]+\)`)
	commands := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for block := range strings.SplitSeq(string(data), "\n\n") {
			lines := strings.Split(strings.TrimSpace(block), "\n")
			if len(lines) < 2 || !strings.HasPrefix(lines[0], "# ") || !strings.HasPrefix(lines[1], "/") {
				continue
			}
			arguments := []string{lines[1]}
			for _, line := range lines[2:] {
				if strings.HasPrefix(line, "--") {
					line = reference.ReplaceAllString(line, "1") // as the kubelet does
					arguments = append(arguments, words(spelled, line)...)
				}
			}
			commands++
			if _, err := Parse(arguments); err != nil {
				t.Errorf("%s, %s: %v", filepath.Base(file), lines[0], err)
			}
		}
	}
	if commands < 300 {
		t.Errorf("%d command lines in %d files: their form is another one now", commands, len(files))
	}
}

// words cuts a line of a golden file; blanks join a flag and its values there.
func words(spelled map[string]spelling, line string) []string {
	name, rest, found := strings.Cut(line, " ")
	switch {
	case !found:
		return []string{name}
	case spelled[name].flag.Many:
		return append([]string{name}, strings.Fields(rest)...)
	}
	return []string{name, rest}
}
