// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command shape measures how hard a package is to read, and fails above the ceilings of shape.yaml. It measures methods
// of a type, fields of a shared struct, calls below Reconcile, files that depend on each other, and lines of a function.
//
// It must not know the packages' purpose.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/tools/go/packages"
	"sigs.k8s.io/yaml"
)

//go:embed shape.yaml
var ceilings []byte

// Rules are the ceilings for all packages, and the exceptions for packages that are still above them.
type Rules struct {
	// Ceilings are by gate.
	Ceilings map[Gate]int `json:"ceilings"`
	// Exceptions are by package path below the module's, and by gate.
	Exceptions map[string]map[Gate]int `json:"exceptions"`
}

func main() {
	dir := flag.String("dir", ".", "the module to measure")
	list := flag.Bool("list", false, "print the measurements of every package")
	flag.Parse()
	if err := run(os.Stdout, *dir, *list, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "shape:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, dir string, list bool, patterns []string) error {
	rules := Rules{}
	if err := yaml.UnmarshalStrict(ceilings, &rules); err != nil {
		return fmt.Errorf("reading shape.yaml: %w", err)
	}
	measured, err := load(dir, patterns)
	if err != nil {
		return err
	}
	if list {
		if err := table(out, measured); err != nil {
			return err
		}
	}
	if broken := rules.Check(measured); len(broken) > 0 {
		return errors.New(strings.Join(broken, "\nshape: "))
	}
	return nil
}

// load measures a module's matching packages. The keys are the packages' paths below the module's.
func load(dir string, patterns []string) (map[string][]Measurement, error) {
	config := &packages.Config{
		Dir:        dir,
		Mode:       packages.NeedName | packages.NeedModule | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedSyntax,
		BuildFlags: []string{"-buildvcs=false"},
	}
	loaded, err := packages.Load(config, patterns...)
	if err != nil {
		return nil, fmt.Errorf("loading packages: %w", err)
	}
	out := map[string][]Measurement{}
	for _, pkg := range loaded {
		if len(pkg.Errors) > 0 {
			return nil, fmt.Errorf("loading package %s: %w", pkg.PkgPath, pkg.Errors[0])
		}
		out[strings.TrimPrefix(pkg.PkgPath, pkg.Module.Path+"/")] = Measure(pkg)
	}
	return out, nil
}

// Check returns a line for each failed gate of a package, and for each exception that is higher than necessary.
func (r *Rules) Check(measured map[string][]Measurement) []string {
	var out []string
	for path, of := range measured {
		for _, m := range of {
			exception, isException := r.Exceptions[path][m.Gate]
			ceiling := max(r.Ceilings[m.Gate], exception)
			switch {
			case m.Value > ceiling:
				out = append(out, fmt.Sprintf("%s: %s of %s: %d, at most %d", path, m.Gate, m.Subject, m.Value, ceiling))
			case isException && m.Value <= r.Ceilings[m.Gate]:
				out = append(out, fmt.Sprintf("%s: %s: %d, so remove its exception from shape.yaml", path, m.Gate, m.Value))
			case isException && m.Value < exception:
				out = append(out, fmt.Sprintf("%s: %s: lower its exception in shape.yaml from %d to %d", path, m.Gate, exception, m.Value))
			}
		}
	}
	slices.Sort(out)
	return out
}

// table prints the measurements, sorted by package.
func table(out io.Writer, measured map[string][]Measurement) error {
	var text bytes.Buffer
	writer := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(writer, "PACKAGE\tMETHODS\tFIELDS\tCHAIN\tCYCLE\tLINES")
	paths := make([]string, 0, len(measured))
	for path := range measured {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		cells := []string{path}
		for _, m := range measured[path] {
			cells = append(cells, strings.TrimSpace(fmt.Sprintf("%d %s", m.Value, m.Subject)))
		}
		fmt.Fprintln(writer, strings.Join(cells, "\t"))
	}
	if err := writer.Flush(); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	_, err := text.WriteTo(out)
	return err
}
