// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/modelberth/modelberth/pkg/wording"
)

const (
	// redraw is how often a terminal's last line is drawn again.
	redraw = 200 * time.Millisecond
	// repeat is the pause before the same line is printed again without a terminal.
	repeat = 10 * time.Second
	// width fits the last line of any terminal.
	width = 100
	// indent sets the words of others apart from ours.
	indent = "           "
)

// Console shows a person the progress: a line for each finished thing and, during a wait, its reason and length. On a
// terminal it redraws this one line; elsewhere it repeats it now and then.
type Console struct {
	out      io.Writer
	terminal bool
	now      func() time.Time
	began    time.Time

	mu sync.Mutex
	// waiting is the text of the last line; empty outside a wait.
	waiting      string
	since, spoke time.Time
}

// NewConsole returns a console with times counted from began.
func NewConsole(out io.Writer, terminal bool, began time.Time, now func() time.Time) *Console {
	return &Console{out: out, terminal: terminal, began: began, now: now}
}

// Step announces the start of something.
func (c *Console) Step(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	c.waiting = ""
	fmt.Fprintf(c.out, "[%7.1fs] %s\n", c.now().Sub(c.began).Seconds(), fmt.Sprintf(format, args...))
}

// Wait shows the reason of the current wait. Callers may repeat it freely.
func (c *Console) Wait(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if text != c.waiting {
		c.clear()
		if c.terminal && c.waiting != "" {
			fmt.Fprintln(c.out, c.line(now, 0)) // earlier lines stay readable
		}
		c.waiting, c.since, c.spoke = text, now, time.Time{}
	}
	switch {
	case c.terminal:
		fmt.Fprint(c.out, "\r\x1b[K"+c.line(now, width))
	case now.Sub(c.spoke) >= repeat:
		fmt.Fprintln(c.out, c.line(now, 0))
		c.spoke = now
	}
}

// line renders the wait's reason and length, in at most limit characters; 0 means no limit.
func (c *Console) line(now time.Time, limit int) string {
	head := fmt.Sprintf("[%7.1fs]   ... ", now.Sub(c.began).Seconds())
	tail := ""
	if waited := now.Sub(c.since); waited >= time.Second {
		tail = fmt.Sprintf(" (%d s)", int(waited.Seconds()))
	}
	text := c.waiting
	if limit > 0 {
		text = wording.Clip(text, limit-len(head)-len(tail))
	}
	return head + text + tail
}

// clear removes the redrawn line.
func (c *Console) clear() {
	if c.terminal && c.waiting != "" {
		fmt.Fprint(c.out, "\r\x1b[K")
	}
}

// During shows text as the reason of the wait while run works.
func (c *Console) During(text string, run func() error) error {
	done := make(chan error, 1)
	go func() { done <- run() }()
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	for {
		c.Wait(text)
		select {
		case err := <-done:
			c.end()
			return err
		case <-ticker.C:
		}
	}
}

// end removes the last line after a wait.
func (c *Console) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	c.waiting = ""
}

// Print shows text as it is, set apart from ours.
func (c *Console) Print(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	c.waiting = ""
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		fmt.Fprintln(c.out, strings.TrimRight(indent+line, " "))
	}
}

// Command shows a command for a person to copy.
func (c *Console) Command(text string) { c.Print("$ " + text) }

// Indented returns a writer with lines set apart from ours.
func (c *Console) Indented() io.Writer { return &indented{console: c} }

type indented struct {
	console *Console
	rest    string
}

func (w *indented) Write(data []byte) (int, error) {
	text := w.rest + string(data)
	whole, rest, found := cutLast(text, "\n")
	if !found {
		w.rest = text
		return len(data), nil
	}
	w.rest = rest
	w.console.Print(whole)
	return len(data), nil
}

func cutLast(text, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(text, separator); i >= 0 {
		return text[:i], text[i+len(separator):], true
	}
	return "", text, false
}
