// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command testsummary runs `go test` for one tier of the tests, shows only the essentials to a person, and at the end
// prints one table over all tiers. It decides when a tier fails: if a test fails, if a package does not build or
// crashes, or if no test ran. It must not know the tiers: the Makefile defines them.
//
//	testsummary run -tier unit [-dir DIR] [-live] [-results FILE] -- ARGUMENTS OF GO TEST
//	testsummary skip -tier e2e -why REASON -results FILE
//	testsummary table -expect unit,e2e -results FILE
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// errTestsFailed means that the tests ran and the failures are already printed.
var errTestsFailed = errors.New("tests failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// The program still waits for the tests after the reader of its output is gone.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	err := command(ctx, os.Args[1:], os.Stdout)
	stop()
	if err == nil {
		return
	}
	if !errors.Is(err, errTestsFailed) {
		fmt.Fprintln(os.Stderr, "testsummary:", err)
	}
	os.Exit(1)
}

// command runs one subcommand.
func command(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("no subcommand: use run, skip or table")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	tier := flags.String("tier", "", "name of the tier")
	results := flags.String("results", "", "file for the results; empty means none")
	dir := flags.String("dir", ".", "directory of the module to test")
	live := flags.Bool("live", false, "print the output of the tests immediately")
	why := flags.String("why", "", "reason to leave the tier out")
	expect := flags.String("expect", "", "tiers that the table must have, separated by commas")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "run":
		return runTier(ctx, suite{tier: *tier, dir: *dir, live: *live, args: flags.Args()}, *results, out)
	case "skip":
		fmt.Fprintf(out, "%s: left out: %s\n", *tier, *why)
		return appendRecord(*results, record{Tier: *tier, LeftOut: *why})
	case "table":
		records, err := readRecords(*results)
		if err != nil {
			return err
		}
		return printTable(out, merge(records, strings.Split(*expect, ",")))
	default:
		return fmt.Errorf("unknown subcommand %q: use run, skip or table", args[0])
	}
}
