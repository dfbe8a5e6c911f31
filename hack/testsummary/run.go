// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// shutdownTime is the time that an interrupted go test has to clean up.
const shutdownTime = 2 * time.Minute

// suite is one run of go test.
type suite struct {
	tier, dir string
	live      bool
	args      []string
}

// runTier runs a suite, shows it, and appends its record to the results.
func runTier(ctx context.Context, s suite, results string, out io.Writer) error {
	start := time.Now()
	rec, err := goTest(ctx, s, out)
	if err != nil {
		// go test printed why: a broken module, an interrupt.
		rec.Failed++
		rec.Failures = append(rec.Failures, "go test in "+s.dir)
		fmt.Fprintf(out, "go test in %s: %v\n", s.dir, err)
	}
	if rec.Passed+rec.Failed+rec.Skipped == 0 {
		rec.Failed = 1
		rec.Failures = []string{"go test in " + s.dir + " ran no test"}
		fmt.Fprintf(out, "%s in %s: go test %s ran no test: correct its pattern or its packages\n",
			s.tier, s.dir, strings.Join(s.args, " "))
	}
	rec.Seconds = time.Since(start).Seconds()
	fmt.Fprintf(out, "%s in %s: %d passed, %d failed, %d skipped, %.1f s\n",
		s.tier, s.dir, rec.Passed, rec.Failed, rec.Skipped, rec.Seconds)
	if err := appendRecord(results, rec); err != nil {
		return err
	}
	if rec.Failed > 0 {
		return errTestsFailed
	}
	return nil
}

// goTest runs go test and returns its record. An error means that go test failed without naming a test or a package.
func goTest(ctx context.Context, s suite, out io.Writer) (record, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, s.args...)...)
	cmd.Dir, cmd.Stderr = s.dir, os.Stderr
	// The go command does not forward a signal to the tests, so its whole process group gets the signal. The group is
	// new, so it gets no second signal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = shutdownTime
	tally := newTally(s.tier, s.live)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return tally.record, err
	}
	if err := cmd.Start(); err != nil {
		return tally.record, err
	}
	scanErr := scan(stdout, tally, out)
	if err := cmd.Wait(); err != nil && tally.record.Failed == 0 {
		return tally.record, err
	}
	return tally.record, scanErr
}

// scan passes the lines of go test to the tally. It prints lines that are not events unchanged: a test binary may print
// them directly.
func scan(in io.Reader, t *tally, out io.Writer) error {
	reader := bufio.NewReader(in)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				e = event{Action: "build-output", Output: string(line)}
			}
			if _, err := io.WriteString(out, t.add(e)); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the output of go test: %w", err)
		}
	}
}
