// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/modelberth/modelberth/test/localcloud/supervisor"
)

// repeatAfter is the pause before the same line is printed again with the reason of the delay.
const repeatAfter = 5 * time.Second

// narrator shows a person the start's progress: a line for each new wait, and a reminder during a long one.
type narrator struct {
	out   io.Writer
	began time.Time
	now   func() time.Time

	stage, waiting string
	said           time.Time
}

func newNarrator(out io.Writer, began time.Time) *narrator {
	return &narrator{out: out, began: began, now: time.Now}
}

func (n *narrator) status(s supervisor.Status) {
	now := n.now()
	isNew := s.Stage != n.stage || s.Waiting != n.waiting
	if s.Ready || s.Waiting == "" || (!isNew && now.Sub(n.said) < repeatAfter) {
		return
	}
	line := fmt.Sprintf("[%5.1fs] %s: waiting for %s", now.Sub(n.began).Seconds(), s.Stage, s.Waiting)
	if !isNew && s.Answer != "" {
		line += " (" + s.Answer + ")"
	}
	fmt.Fprintln(n.out, line)
	n.stage, n.waiting, n.said = s.Stage, s.Waiting, now
}

func (n *narrator) ready(s supervisor.Status) {
	fmt.Fprintf(n.out, "[%5.1fs] ready\n", n.now().Sub(n.began).Seconds())
	fmt.Fprintf(n.out, "export KUBECONFIG=%s\n", s.Kubeconfig)
}

// tailLines is how much of a log an error quotes.
const tailLines = 5

// tail returns the last lines of a file, or the error of reading it.
func tail(path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	all := bytes.Split(bytes.TrimRight(data, "\n"), []byte("\n"))
	return bytes.Join(all[max(0, len(all)-tailLines):], []byte("\n"))
}
