// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	tests := []struct {
		reason  string
		records []record
		expect  string
		want    string
		fails   bool
	}{
		{
			reason: "the runs of a tier add up, and the last line counts every tier",
			records: []record{
				{Tier: "unit", Packages: 2, Passed: 30, Seconds: 1.5},
				{Tier: "unit", Packages: 1, Passed: 5, Skipped: 1, Seconds: 0.5},
				{Tier: "integration", Packages: 1, Passed: 7, Seconds: 20},
			},
			expect: "unit,integration",
			want: `
         tier  result  packages  passed  failed  skipped  seconds
         unit  passed         3      35       0        1      2.0
  integration  passed         1       7       0        0     20.0

42 passed, 0 failed, 1 skipped
`,
		},
		{
			reason: "a tier that is left out says why and does not fail the run",
			records: []record{
				{Tier: "unit", Packages: 1, Passed: 1, Seconds: 1},
				{Tier: "e2e", LeftOut: "needs root"},
			},
			expect: "unit,e2e",
			want: `
  tier    result  packages  passed  failed  skipped  seconds
  unit    passed         1       1       0        0      1.0
   e2e  left out         0       0       0        0      0.0
left out: e2e: needs root

1 passed, 0 failed, 0 skipped
`,
		},
		{
			reason: "a tier that ran nothing and one that did not start are failures",
			records: []record{
				{Tier: "unit", Seconds: 1},
			},
			expect: "unit,e2e",
			want: `
  tier  result  packages  passed  failed  skipped  seconds
  unit  failed         0       0       1        0      1.0
   e2e  failed         0       0       1        0      0.0
failed: unit ran no test
failed: e2e did not start: see above

0 passed, 2 failed, 0 skipped
`,
			fails: true,
		},
		{
			reason: "a failed test is named",
			records: []record{
				{Tier: "unit", Packages: 1, Passed: 1, Failed: 1, Seconds: 1, Failures: []string{"p TestX"}},
			},
			expect: "unit",
			want: `
  tier  result  packages  passed  failed  skipped  seconds
  unit  failed         1       1       1        0      1.0
failed: p TestX

1 passed, 1 failed, 0 skipped
`,
			fails: true,
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			results := filepath.Join(t.TempDir(), "results")
			for _, rec := range test.records {
				if err := appendRecord(results, rec); err != nil {
					t.Fatal(err)
				}
			}
			var out strings.Builder
			err := command(t.Context(), []string{"table", "-expect", test.expect, "-results", results}, &out)
			if diff := cmp.Diff(test.want, out.String()); diff != "" {
				t.Errorf("table (-want +got):\n%s", diff)
			}
			if errors.Is(err, errTestsFailed) != test.fails {
				t.Errorf("got error %v, want failure %v", err, test.fails)
			}
		})
	}
}
