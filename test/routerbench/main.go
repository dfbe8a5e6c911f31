// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command routerbench measures the router's surcharge on requests, compared with a direct connection, nginx and
// HAProxy. All of them stand before one engine with immediate answers, in processes of their own on this machine.
//
// It decides the loads and prints the figures. It must not judge them: the machine may be shared.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"
)

// plan has the settings of the measurement.
type plan struct {
	rounds       int
	round        time.Duration // of each load, for each side
	rate         int           // small requests per second
	largeRate    int           // large requests per second
	largeBytes   int
	streams      int
	streamEvents int // one a second
}

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case roleEngine, roleRouter:
			if err := child(os.Args[1], os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	p := plan{rounds: 3, round: 5 * time.Second, rate: 500, largeRate: 20, largeBytes: 400_000, streams: 2000, streamEvents: 8}
	flag.IntVar(&p.rounds, "rounds", p.rounds, "number of rounds of small requests; the sides take turns")
	flag.DurationVar(&p.round, "round", p.round, "length of a round")
	flag.IntVar(&p.rate, "rate", p.rate, "small requests per second")
	flag.IntVar(&p.streams, "streams", p.streams, "streams at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := bench(ctx, p, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "routerbench:", err)
		os.Exit(1) //nolint:gocritic // the signal handler ends with the process
	}
}

// bench starts all sides, measures and prints.
func bench(ctx context.Context, p plan, out io.Writer) error {
	directory, err := os.MkdirTemp("", "routerbench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	sides, stop, err := startSides(ctx, directory, out)
	defer stop()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "load average %s\n\n", loadAverage())
	for _, measure := range []func(context.Context, plan, []*side, io.Writer) error{small, large, streams} {
		if err := measure(ctx, p, sides, out); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "load average %s\n", loadAverage())
	return nil
}

// table prints rows of cells.
func table(out io.Writer, rows [][]string) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		for _, cell := range row {
			fmt.Fprintf(w, "%s\t", cell)
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
	fmt.Fprintln(out)
}
