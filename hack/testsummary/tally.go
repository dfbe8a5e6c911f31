// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// event is one line of `go test -json`.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
	Elapsed    float64
}

// testKey names a test; an empty test is the package itself.
type testKey struct{ pkg, test string }

// packageCount counts the finished tests of one package.
type packageCount struct{ passed, failed, skipped int }

// tally turns a stream of events into a record, and into text for people: one line for each package, and the output of
// all failures.
type tally struct {
	record   record
	live     bool
	outputs  map[testKey]*strings.Builder
	packages map[string]*packageCount
}

func newTally(tier string, live bool) *tally {
	return &tally{
		record:   record{Tier: tier},
		live:     live,
		outputs:  map[testKey]*strings.Builder{},
		packages: map[string]*packageCount{},
	}
}

// add adds one event, and returns the text to show for it.
func (t *tally) add(e event) string {
	switch e.Action {
	case "build-output":
		return e.Output
	case "output":
		if isVerdict(e) {
			return "" // finishPackage prints it
		}
		if t.live {
			return e.Output
		}
		t.output(testKey{e.Package, e.Test}).WriteString(e.Output)
		return ""
	case "pass", "fail", "skip":
		if e.Test == "" {
			return t.finishPackage(e)
		}
		return t.finishTest(e)
	}
	return ""
}

// isVerdict reports whether an event is go test's own last line on a package.
func isVerdict(e event) bool {
	word := strings.TrimRight(e.Output, "\n")
	word, _, _ = strings.Cut(word, "\t")
	return e.Test == "" && (word == "FAIL" || word == "PASS" || word == "ok  ")
}

// finishTest counts a test, subtests included, and returns its output if it failed.
func (t *tally) finishTest(e event) string {
	key := testKey{e.Package, e.Test}
	text := t.output(key).String()
	delete(t.outputs, key)
	count := t.count(e.Package)
	switch e.Action {
	case "pass":
		count.passed++
	case "skip":
		count.skipped++
	default:
		count.failed++
		t.record.Failures = append(t.record.Failures, e.Package+" "+e.Test)
		return text
	}
	return ""
}

// finishPackage adds a package to the record, and returns the text to show. A package may fail without a failed test:
// it does not build, panics, exits or times out. That counts as one failed test, and the text has the output of the
// unfinished tests.
func (t *tally) finishPackage(e event) string {
	count, text := t.count(e.Package), t.unfinished(e.Package)
	if e.Action != "fail" {
		text = ""
	} else if count.failed == 0 {
		count.failed = 1
		t.record.Failures = append(t.record.Failures, e.Package)
	}
	ran := count.passed + count.failed + count.skipped
	if ran == 0 {
		return ""
	}
	t.record.Packages++
	t.record.Passed += count.passed
	t.record.Failed += count.failed
	t.record.Skipped += count.skipped
	mark := "ok  "
	if count.failed > 0 {
		mark = "FAIL"
	}
	return fmt.Sprintf("%s%s %-70s tests: %-4d %6.1f s\n", text, mark, e.Package, ran, e.Elapsed)
}

// unfinished returns and removes the output of a package's unfinished tests.
func (t *tally) unfinished(pkg string) string {
	var keys []testKey
	for key := range t.outputs {
		if key.pkg == pkg {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b testKey) int { return strings.Compare(a.test, b.test) })
	var text strings.Builder
	for _, key := range keys {
		text.WriteString(t.outputs[key].String())
		delete(t.outputs, key)
	}
	return text.String()
}

func (t *tally) output(key testKey) *strings.Builder {
	if t.outputs[key] == nil {
		t.outputs[key] = &strings.Builder{}
	}
	return t.outputs[key]
}

func (t *tally) count(pkg string) *packageCount {
	if t.packages[pkg] == nil {
		t.packages[pkg] = &packageCount{}
	}
	return t.packages[pkg]
}
