// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/modelberth/modelberth/pkg/wording"
)

// errorLine returns the most informative line of a log's tail: the first error line, because later ones are
// consequences; else the last of Python's exceptions, which summarises the earlier ones; else the last line.
func errorLine(log string) string {
	// llama.cpp starts lines with a time and a letter. klog starts them with a letter and a time.
	marked := regexp.MustCompile(`^([\d.]+ E |E\d{4} )`)
	exception := regexp.MustCompile(`^[\w.]*(Error|Exception|Exit|Interrupt)(: |$)`)
	last, raised := "", ""
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		if marked.MatchString(line) {
			return wording.Clip(steady(line), maxQuote)
		}
		line = steady(line)
		if exception.MatchString(line) {
			raised = line
		}
		if line != "" {
			last = line
		}
	}
	return wording.Clip(cmp.Or(raised, last), maxQuote)
}

// steady removes the parts of a text that differ between two failures of the same kind: times, addresses, container
// ids, local ports.
func steady(text string) string {
	for _, replacement := range []struct{ pattern, with string }{
		{`^[\d.]{8,} [A-Z] `, ""},
		{`^[IWEF]\d{4} [\d:.]+ +\d+ `, ""},
		// vLLM's process, level, time and source line.
		{`^(\(\w+( pid=\d+)?\) ?)+`, ""},
		{`^(DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[\w./]+:\d+\] ?`, ""},
		{`\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:?\d\d)?\]?`, ""},
		{`\b\d\d:\d\d:\d\d([.,]\d+)?\b`, ""},
		{`\b0x[0-9a-fA-F]+\b`, "0x…"},
		{`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`, "…"},
		{`\b[0-9a-f]{32,}\b`, "…"},
		{`(?i)\bpid[ =:]+\d+`, "pid"},
	} {
		text = regexp.MustCompile(replacement.pattern).ReplaceAllString(text, replacement.with)
	}
	return withoutPorts(text)
}

// withoutPorts removes the local end of "10.0.0.1:43210->10.0.0.2:443", because its port changes each time. It also
// removes characters that would break a line.
func withoutPorts(text string) string {
	text = regexp.MustCompile(`\S+:\d+->`).ReplaceAllString(text, "")
	return wording.OneLine(strings.ToValidUTF8(text, "�"))
}

// killed is the exit code of a process killed from outside.
const killed = 128 + 9

// exit describes an exit code, with the signal if it stands for one: 128 + the signal's number.
func exit(code int32) string {
	signals := map[int32]string{
		128 + 4: "SIGILL", 128 + 6: "SIGABRT", 128 + 7: "SIGBUS", 128 + 8: "SIGFPE", killed: "SIGKILL",
		128 + 11: "SIGSEGV", 128 + 15: "SIGTERM",
	}
	if signal, known := signals[code]; known {
		return fmt.Sprintf("exit code %d, %s", code, signal)
	}
	return fmt.Sprintf("exit code %d", code)
}
