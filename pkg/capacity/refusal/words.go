// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"strings"

	"github.com/modelberth/modelberth/pkg/wording"
)

// Bounds of messages: for the comparison with rules, and for display.
const (
	readLimit  = 16 << 10
	wordsLimit = 512
)

// oneLine joins the lines of a message, collapses runs of spaces, and drops unprintable characters.
func oneLine(message string) string {
	if len(message) > readLimit {
		message = message[:readLimit]
	}
	return wording.OneLine(message)
}

// trim returns the cloud's own words: the innermost message of an error chain, on one line, without the
// provisioner's additions.
func trim(message string) string {
	message = oneLine(message)
	if rest, ok := strings.CutPrefix(message, "NodeClaim "); ok {
		if _, words, found := strings.Cut(rest, " event: "); found {
			message = words
		}
	}
	if inner := innermost(message); inner != "" {
		message = inner
	}
	return wording.ClipBytes(message, wordsLimit)
}

// innermost returns the last "message" field of the JSON in a message, even if it is quoted several times; "" if there
// is none. Provisioners truncate errors, so this is not a JSON parser.
func innermost(message string) string {
	start := strings.LastIndex(message, `"message`)
	if start < 0 {
		return ""
	}
	quote := message[:start+1]
	quote = quote[len(strings.TrimRight(quote, `\"`)):] // the quotation mark with its escapes
	if i := strings.LastIndex(quote[:len(quote)-1], `"`); i >= 0 {
		quote = quote[i+1:]
	}
	rest, ok := strings.CutPrefix(message[start+1:], "message"+quote)
	if !ok {
		return ""
	}
	rest, ok = strings.CutPrefix(strings.TrimLeft(rest, ": "), quote)
	if !ok {
		return ""
	}
	for end := range len(rest) {
		if rest[end] != '"' {
			continue
		}
		if before := strings.TrimRight(rest[:end], `\`); end-len(before) == len(quote)-1 {
			rest = before
			break
		}
	}
	return oneLine(strings.NewReplacer(`\n`, " ", `\t`, " ", `\`, "").Replace(rest))
}
