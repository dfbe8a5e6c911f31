// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wording formats foreign text for messages. It must not know where the text comes from.
package wording

import (
	"strings"
	"unicode"
)

// OneLine returns a text on one line. Each run of spaces and invisible characters becomes one space. Bytes that are not
// UTF-8 are dropped.
func OneLine(text string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, ""), func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsGraphic(r)
	}), " ")
}

// Clip shortens a text to a number of characters, at least 1. A shortened text ends with an ellipsis.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// ClipBytes shortens a text to a number of bytes, at least 3, between two characters. A shortened text ends with an
// ellipsis.
func ClipBytes(text string, most int) string {
	const ellipsis = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:max(0, most-len(ellipsis))], "") + ellipsis
}
