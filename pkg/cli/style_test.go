// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestColours checks that colours appear only on a terminal, and never with NO_COLOR. Without colours, the text is the
// same.
func TestColours(t *testing.T) {
	args := []string{"plan", "--model", "large-chat", "--explain"}
	plain := run(t, args...).Out
	for _, test := range []struct {
		reason   string
		terminal bool
		env      map[string]string
		coloured bool
	}{
		{reason: "a pipe"},
		{reason: "a terminal", terminal: true, coloured: true},
		{reason: "a terminal and an empty NO_COLOR", terminal: true, env: map[string]string{"NO_COLOR": ""}, coloured: true},
		{reason: "a terminal and NO_COLOR", terminal: true, env: map[string]string{"NO_COLOR": "0"}},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got := process{terminal: test.terminal, env: test.env}.run(t, args...).Out
			if coloured := strings.Contains(got, "\x1b["); coloured != test.coloured {
				t.Errorf("coloured is %v, want %v", coloured, test.coloured)
			}
			bare := regexp.MustCompile("\x1b\\[\\d*m").ReplaceAllString(got, "")
			if diff := cmp.Diff(plain, bare); diff != "" {
				t.Errorf("without its colours (-plain +got):\n%s", diff)
			}
			if test.coloured && strings.Contains(bare, "\x1b") {
				t.Error("a colour is left open")
			}
		})
	}
}

// TestBars checks that all bars have the same width.
func TestBars(t *testing.T) {
	bars := regexp.MustCompile(`(?m)^ {2}[█▓▒░]{2,}$`)
	widths := map[int]bool{}
	for _, args := range [][]string{
		{"plan", "--model", "small"},
		{"plan", "--model", "tiny-chat"},
		{"plan", "--model", "large-chat"},
		{"estimate", "--model", "large-chat", "--gpu", "A24"},
		{"estimate", "--model", "small", "--gpu", "B-80", "--gpu-memory-utilization", "0.01"},
	} {
		found := bars.FindAllString(run(t, args...).Out, -1)
		if len(found) != 1 {
			t.Errorf("%v: %d bars, want one", args, len(found))
			continue
		}
		widths[len([]rune(found[0]))] = true
	}
	if len(widths) != 1 {
		t.Errorf("bars of %d widths: %v", len(widths), widths)
	}
}
