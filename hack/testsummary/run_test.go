// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestRunTierRecordsWhatGoTestDid(t *testing.T) {
	tests := []struct {
		reason string
		source string
		args   []string
		want   record
		shown  []string
		hidden []string
	}{
		{
			reason: "passing and skipped tests count, subtests included, and their output is not shown",
			source: `import "testing"
				func TestPasses(t *testing.T) { t.Log("quiet"); t.Run("sub", func(t *testing.T) {}) }
				func TestSkips(t *testing.T)  { t.Skip("not here") }`,
			want:   record{Packages: 1, Passed: 2, Skipped: 1},
			shown:  []string{"ok   example.com/sample", "2 passed, 0 failed, 1 skipped"},
			hidden: []string{"quiet", "not here"},
		},
		{
			reason: "a failed test is named and its output shown, that of its neighbour is not",
			source: `import "testing"
				func TestFails(t *testing.T)  { t.Error("the reason") }
				func TestPasses(t *testing.T) { t.Log("quiet") }`,
			want:   record{Packages: 1, Passed: 1, Failed: 1, Failures: []string{"example.com/sample TestFails"}},
			shown:  []string{"FAIL example.com/sample", "the reason"},
			hidden: []string{"quiet"},
		},
		{
			reason: "a package that does not build is one failure with the compiler's words",
			source: `func TestFails(t *testing.T) {}`,
			want:   record{Packages: 1, Failed: 1, Failures: []string{"example.com/sample"}},
			shown:  []string{"undefined: testing"},
		},
		{
			reason: "a package that exits in the middle of a test is one failure with what it printed",
			source: `import ("fmt"; "os"; "testing")
				func TestExits(t *testing.T) { fmt.Println("last words"); os.Exit(3) }`,
			want:  record{Packages: 1, Failed: 1, Failures: []string{"example.com/sample"}},
			shown: []string{"last words"},
		},
		{
			reason: "a module without tests proves nothing",
			source: ``,
			want:   record{Failed: 1, Failures: []string{"go test in DIR ran no test"}},
			shown:  []string{"unit in DIR: go test ./... ran no test: correct its pattern or its packages"},
			hidden: []string{"example.com/sample"},
		},
		{
			reason: "neither does a pattern that no test matches",
			source: `import "testing"
				func TestPasses(t *testing.T) {}`,
			args:  []string{"-run", "TestPases", "./..."},
			want:  record{Failed: 1, Failures: []string{"go test in DIR ran no test"}},
			shown: []string{"unit in DIR: go test -run TestPases ./... ran no test: correct its pattern or its packages"},
		},
		{
			reason: "a test that is skipped was found",
			source: `import "testing"
				func TestSkips(t *testing.T) { t.Skip("not here") }`,
			want: record{Packages: 1, Skipped: 1},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "go.mod"), "module example.com/sample\n\ngo 1.26\n")
			writeFile(t, filepath.Join(dir, "sample_test.go"), "package sample\n"+test.source)
			results := filepath.Join(dir, "results")

			var out strings.Builder
			if test.args == nil {
				test.args = []string{"./..."}
			}
			err := runTier(context.Background(), suite{tier: "unit", dir: dir, args: test.args}, results, &out)

			if failed := errors.Is(err, errTestsFailed); failed != (test.want.Failed > 0) {
				t.Errorf("runTier returned %v with %d failed tests wanted", err, test.want.Failed)
			}
			test.want.Tier = "unit"
			for i, failure := range test.want.Failures {
				test.want.Failures[i] = strings.ReplaceAll(failure, "DIR", dir)
			}
			got, err := readRecords(results)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]record{test.want}, got, cmpopts.IgnoreFields(record{}, "Seconds")); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
			for _, text := range test.shown {
				if !strings.Contains(out.String(), strings.ReplaceAll(text, "DIR", dir)) {
					t.Errorf("output lacks %q:\n%s", text, out.String())
				}
			}
			for _, text := range test.hidden {
				if strings.Contains(out.String(), text) {
					t.Errorf("output shows %q:\n%s", text, out.String())
				}
			}
		})
	}
}

func TestRunTierFailsInABrokenModule(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "go.mod"), "not a module file")

	var out strings.Builder
	err := runTier(context.Background(), suite{tier: "unit", dir: dir, args: []string{"./..."}}, "", &out)

	if !errors.Is(err, errTestsFailed) {
		t.Errorf("runTier in a module that go cannot read: got %v, want %v", err, errTestsFailed)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
