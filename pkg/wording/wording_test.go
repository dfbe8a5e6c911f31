// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package wording_test

import (
	"testing"

	"github.com/modelberth/modelberth/pkg/wording"
)

func TestOneLine(t *testing.T) {
	tests := []struct{ reason, text, want string }{
		{"words stay", "no capacity", "no capacity"},
		{"lines are joined", " no\n\tcapacity\r\n", "no capacity"},
		{"control characters go", "\x1b[31mno\x00capacity", "[31mno capacity"},
		{"bytes outside UTF-8 go", "no\xff capacity", "no capacity"},
		{"nothing stays nothing", "", ""},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if got := wording.OneLine(test.text); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestClip(t *testing.T) {
	tests := []struct {
		reason, text string
		most         int
		want         string
	}{
		{"a short text stays", "gpu", 4, "gpu"},
		{"characters count, not bytes", "größe", 5, "größe"},
		{"a long text ends in an ellipsis", "größere", 5, "größ…"},
		{"one character is left", "gpu", 1, "…"},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if got := wording.Clip(test.text, test.most); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestClipBytes(t *testing.T) {
	tests := []struct {
		reason, text string
		most         int
		want         string
	}{
		{"a short text stays", "größe", 7, "größe"},
		{"bytes count, not characters", "größe", 6, "gr…"},
		{"no character is cut in two", "aößen", 6, "aö…"},
		{"only the ellipsis fits", "größe", 3, "…"},
		{"a shortened text is valid UTF-8", "a\xffbcdef", 6, "ab…"},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if got := wording.ClipBytes(test.text, test.most); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
