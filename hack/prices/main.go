// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command prices writes the prices of the catalogue's machine types into presets/skus. The prices are the records that
// the clouds' Karpenter providers took from the clouds' price lists, at pinned versions, with the date of the record.
// It changes only the prices and the dates.
//
// It only parses the providers' modules, and never compiles them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "prices:", err)
		os.Exit(1)
	}
}

// errStale means that -check found outdated prices.
var errStale = errors.New("the prices differ from the pinned sources: run make prices, or pin other sources")

// settings of one run.
type settings struct {
	// dir is the directory with the files to write.
	dir string
	// check is set to compare only, and write nothing.
	check bool
	// gcpPrices is a copy of the GCP provider's record, and gcpDate its date; empty skips GCP.
	gcpPrices, gcpDate string
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var s settings
	flags := flag.NewFlagSet("prices", flag.ContinueOnError)
	flags.StringVar(&s.dir, "dir", "../../presets/skus", "directory of azure.yaml, aws.yaml and gcp.yaml")
	flags.BoolVar(&s.check, "check", false, "list the differences, write nothing, and fail if there are any")
	flags.StringVar(&s.gcpPrices, "gcp-prices", "", "copy of "+gcpRecord+"; empty leaves gcp.yaml alone")
	flags.StringVar(&s.gcpDate, "gcp-date", "", "date of the commit with that copy, such as 2026-08-03")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if (s.gcpPrices == "") != (s.gcpDate == "") {
		return errors.New("-gcp-prices and -gcp-date need each other: give both, with the date of the commit that has the file")
	}
	return s.update(ctx, out)
}

// update updates all files from their sources.
func (s settings) update(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	stale := false
	for _, p := range pins() {
		dir, err := download(ctx, p)
		if err != nil {
			return err
		}
		t, err := p.read(dir)
		if err != nil {
			return fmt.Errorf("%s %s: %w", p.module, p.version, err)
		}
		if p.survey != nil {
			if err := t.survey(ctx, *p.survey); err != nil {
				return err
			}
		}
		differs, err := s.file(p.file, t, out)
		if err != nil {
			return err
		}
		stale = stale || differs
	}
	if s.gcpPrices != "" {
		t, err := readGCP(s.gcpPrices, s.gcpDate)
		if err != nil {
			return err
		}
		differs, err := s.file("gcp.yaml", t, out)
		if err != nil {
			return err
		}
		stale = stale || differs
	}
	if s.check && stale {
		return errStale
	}
	return nil
}

// survey adds more regions from an older record.
func (t *table) survey(ctx context.Context, s survey) error {
	dir, err := download(ctx, s.pin)
	if err != nil {
		return err
	}
	surveyed, err := s.read(dir)
	if err != nil {
		return fmt.Errorf("%s %s: %w", s.module, s.version, err)
	}
	t.addSurvey(surveyed, s.reference)
	return nil
}

// file rewrites one file, or prints the differences, and reports whether there are any.
func (s settings) file(name string, t table, out io.Writer) (bool, error) {
	path := filepath.Join(s.dir, name)
	before, err := os.ReadFile(path)
	if err != nil {
		return false, fmt.Errorf("reading the machine types: %w", err)
	}
	after, changes, err := rewrite(string(before), t)
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	for _, change := range changes {
		fmt.Fprintf(out, "%s: %s\n", name, change)
	}
	if after == string(before) {
		fmt.Fprintf(out, "%s: up to date, prices of %s\n", name, t.date)
		return false, nil
	}
	if s.check {
		return true, nil
	}
	if err := os.WriteFile(path, []byte(after), 0o644); err != nil { //nolint:gosec // a file of the source tree, for everybody
		return false, fmt.Errorf("writing the machine types: %w", err)
	}
	return true, nil
}

// pins returns the modules with the prices. Each is for one file.
func pins() []pin {
	aws := awsSurvey()
	return []pin{
		{
			file: "azure.yaml", module: "github.com/Azure/karpenter-provider-azure", version: "v1.14.0",
			sum:     "h1:wAz+49j2y2pEJBV6hzH8lr6LrMJl5BGmdl9MQ7O6Uyw=",
			records: []string{"pkg/providers/pricing/zz_generated.pricing.go"},
		},
		{
			file: "aws.yaml", module: "github.com/aws/karpenter-provider-aws", version: "v1.14.1",
			sum: "h1:WGtIQTQcxpElYMdWfWuPwaF2+9muR+hYhPZsTtoY8Gs=",
			records: []string{
				"pkg/providers/pricing/zz_generated.pricing_aws.go",
				"pkg/providers/pricing/zz_generated.pricing_aws_us_gov.go",
			},
			survey: &aws,
		},
	}
}

// read reads a module's records. The date is the first record's.
func (p pin) read(dir string) (table, error) {
	var all table
	for i, record := range p.records {
		t, err := readGo(filepath.Join(dir, filepath.FromSlash(record)))
		if err != nil {
			return table{}, fmt.Errorf("%s: %w", record, err)
		}
		if i == 0 {
			all = t
			continue
		}
		for _, machine := range sorted(t.onDemand) {
			for region, price := range t.onDemand[machine] {
				all.onDemand.put(machine, region, price)
			}
		}
	}
	return all, nil
}
