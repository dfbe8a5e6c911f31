// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelberth/modelberth/test/vllmsim/args"
)

// logger writes as vLLM does: its log to the output, exceptions to the error output.
type logger struct {
	mu        sync.Mutex
	out, errs io.Writer
}

// Write lets others write whole lines.
func (l *logger) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(b)
}

// info is a line of one of vLLM's processes, in one of its files.
func (l *logger) info(process, file, format string, a ...any) {
	fmt.Fprintf(l, "(%s pid=%d) INFO %s [%s] %s\n", process, os.Getpid(), time.Now().Format("01-02 15:04:05"), file, fmt.Sprintf(format, a...))
}

func (l *logger) failure(process, file, format string, a ...any) {
	fmt.Fprintf(l, "(%s pid=%d) ERROR %s [%s] %s\n", process, os.Getpid(), time.Now().Format("01-02 15:04:05"), file, fmt.Sprintf(format, a...))
}

// traceback ends with the exception's kind and text.
func (l *logger) traceback(err error) {
	text := err.Error()
	if value, ok := errors.AsType[*args.ValueError](err); ok {
		text = value.Message
	}
	fmt.Fprintf(l.errs, "(APIServer pid=%d) Traceback (most recent call last):\n"+
		"(APIServer pid=%d)   File \"/usr/local/bin/vllm\", line 10, in <module>\n"+
		"(APIServer pid=%d)     sys.exit(main())\n", os.Getpid(), os.Getpid(), os.Getpid())
	for line := range strings.Lines(text) {
		fmt.Fprintf(l.errs, "(APIServer pid=%d) %s\n", os.Getpid(), strings.TrimSuffix(line, "\n"))
	}
}

// grouped writes 460912 as 460,912.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
