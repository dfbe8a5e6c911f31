// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// clock is moved by hand.
type clock struct{ at time.Time }

func (c *clock) now() time.Time       { return c.at }
func (c *clock) pass(d time.Duration) { c.at = c.at.Add(d) }
func newClock() *clock                { return &clock{at: time.Unix(1_000_000, 0)} }
func (c *clock) console(out *strings.Builder, terminal bool) *Console {
	return NewConsole(out, terminal, c.at, c.now)
}

func TestConsole(t *testing.T) {
	tell := func(c *clock, console *Console) {
		console.Step("building %d things", 2)
		console.Wait("first")
		c.pass(2 * time.Second)
		console.Wait("first")
		c.pass(time.Second)
		console.Wait("second")
		c.pass(11 * time.Second)
		console.Wait("second")
		console.Print("a\n  b\n\nc\n")
		console.Command("kubectl get pods")
		console.Step("done")
	}
	cases := []struct {
		reason   string
		terminal bool
		want     []string
	}{
		{
			reason: "a file gets whole lines: what is new, and what takes long from time to time",
			want: []string{
				"[    0.0s] building 2 things",
				"[    0.0s]   ... first",
				"[    3.0s]   ... second",
				"[   14.0s]   ... second (11 s)",
				"           a", "             b", "", "           c",
				"           $ kubectl get pods",
				"[   14.0s] done",
				"",
			},
		},
		{
			reason:   "a terminal's last line is drawn over until something else comes",
			terminal: true,
			want: []string{
				"[    0.0s] building 2 things",
				"\r\x1b[K[    0.0s]   ... first\r\x1b[K[    2.0s]   ... first (2 s)\r\x1b[K[    3.0s]   ... first (3 s)",
				"\r\x1b[K[    3.0s]   ... second\r\x1b[K[   14.0s]   ... second (11 s)\r\x1b[K           a",
				"             b", "", "           c",
				"           $ kubectl get pods",
				"[   14.0s] done",
				"",
			},
		},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			var out strings.Builder
			clock := newClock()
			tell(clock, clock.console(&out, c.terminal))
			if diff := cmp.Diff(c.want, strings.Split(out.String(), "\n")); diff != "" {
				t.Errorf("the console shows something else (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConsoleKeepsLinesShort(t *testing.T) {
	var out strings.Builder
	clock := newClock()
	console := clock.console(&out, true)
	console.Wait(strings.Repeat("é", 300))
	clock.pass(75 * time.Second)
	console.Wait(strings.Repeat("é", 300))
	lines := strings.Split(out.String(), "\r\x1b[K")[1:]
	for i, suffix := range []string{"é…", "é… (75 s)"} {
		if length := len([]rune(lines[i])); length != width || !strings.HasSuffix(lines[i], suffix) {
			t.Errorf("the line has %d characters, want %d and %q at the end, or the terminal wraps it: %q", length, width, suffix, lines[i])
		}
	}
}

func TestDuringReturnsTheError(t *testing.T) {
	var out strings.Builder
	want := errors.New("no")
	if got := newClock().console(&out, false).During("working", func() error { return want }); !errors.Is(got, want) {
		t.Errorf("the error is %v, want %v", got, want)
	}
	if !strings.Contains(out.String(), "... working") {
		t.Errorf("what goes on is not said: %q", out.String())
	}
}

func TestIndentedJoinsWhatComesInPieces(t *testing.T) {
	var out strings.Builder
	writer := newClock().console(&out, false).Indented()
	for _, piece := range []string{"one li", "ne\ntwo", " lines\nrest"} {
		if n, err := fmt.Fprint(writer, piece); err != nil || n != len(piece) {
			t.Fatalf("writing %q: %d, %v", piece, n, err)
		}
	}
	want := "           one line\n           two lines\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
