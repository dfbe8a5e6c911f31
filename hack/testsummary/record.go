// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// record is the result of one run of go test, or of a whole tier.
type record struct {
	Tier     string
	Packages int
	Passed   int
	Failed   int
	Skipped  int
	Seconds  float64
	Failures []string `json:",omitempty"`
	// LeftOut is the reason why the tier did not run; empty means it ran.
	LeftOut string `json:",omitempty"`
}

// appendRecord adds a record to the results file. Without a file, it does nothing.
func appendRecord(path string, rec record) error {
	if path == "" {
		return nil
	}
	line, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encoding the result of tier %s: %w", rec.Tier, err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("recording the result of tier %s: %w", rec.Tier, err)
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// readRecords reads a results file. A missing file means that no tier has run.
func readRecords(path string) ([]record, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the results: %w", err)
	}
	var records []record
	for line := range bytes.Lines(data) {
		var rec record
		if err := json.Unmarshal(line, &rec); err != nil {
			return nil, fmt.Errorf("reading the results in %s: %w", path, err)
		}
		records = append(records, rec)
	}
	return records, nil
}

// merge adds up the records of each expected tier, in that order. A tier without a record did not run, and a tier
// without a test proves nothing. Both count as a failure.
func merge(records []record, expected []string) []record {
	var tiers []record
	for _, tier := range expected {
		sum, seen := record{Tier: tier}, false
		for _, rec := range records {
			if rec.Tier == tier {
				seen = true
				sum = add(sum, rec)
			}
		}
		switch {
		case !seen:
			sum.Failed, sum.Failures = 1, []string{tier + " did not start: see above"}
		case sum.LeftOut == "" && sum.Passed+sum.Failed == 0:
			sum.Failed, sum.Failures = 1, []string{tier + " ran no test"}
		}
		tiers = append(tiers, sum)
	}
	return tiers
}

func add(a, b record) record {
	a.Packages += b.Packages
	a.Passed += b.Passed
	a.Failed += b.Failed
	a.Skipped += b.Skipped
	a.Seconds += b.Seconds
	a.Failures = slices.Concat(a.Failures, b.Failures)
	if a.LeftOut == "" {
		a.LeftOut = b.LeftOut
	}
	return a
}

// printTable prints a line for each tier, the failures, and the totals.
func printTable(out io.Writer, tiers []record) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\ntier\tresult\tpackages\tpassed\tfailed\tskipped\tseconds\t")
	var total record
	var notes strings.Builder
	for _, tier := range tiers {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%.1f\t\n", tier.Tier, result(tier),
			tier.Packages, tier.Passed, tier.Failed, tier.Skipped, tier.Seconds)
		for _, failure := range tier.Failures {
			fmt.Fprintf(&notes, "failed: %s\n", failure)
		}
		if tier.LeftOut != "" {
			fmt.Fprintf(&notes, "left out: %s: %s\n", tier.Tier, tier.LeftOut)
		}
		total = add(total, tier)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the results: %w", err)
	}
	fmt.Fprintf(out, "%s\n%d passed, %d failed, %d skipped\n", notes.String(), total.Passed, total.Failed, total.Skipped)
	if total.Failed > 0 {
		return errTestsFailed
	}
	return nil
}

func result(tier record) string {
	switch {
	case tier.Failed > 0:
		return "failed"
	case tier.LeftOut != "":
		return "left out"
	default:
		return "passed"
	}
}
