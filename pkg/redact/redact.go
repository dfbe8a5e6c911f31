// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package redact removes secrets from texts with URLs. Registries and stores answer with signed URLs, and HTTP clients
// quote these in their errors.
//
// It decides which parts of a URL may be shown: scheme, host and path. It must not know the source of the text.
package redact

import (
	"regexp"
	"strings"
)

// hidden replaces removed parts.
const hidden = "…"

// Text returns a text without the user information, query and fragment of each URL. It also removes queries and bearer
// tokens outside URLs.
func Text(text string) string {
	if strings.Contains(text, "://") {
		text = absolute.ReplaceAllStringFunc(text, address)
	}
	if strings.Contains(text, "=") {
		text = query.ReplaceAllString(text, "${1}"+hidden)
		text = signed.ReplaceAllString(text, "${1}="+hidden)
	}
	if strings.Contains(strings.ToLower(text), "bearer ") { // a search for the pattern alone would be slow
		text = bearer.ReplaceAllString(text, "${1} "+hidden)
	}
	return text
}

// Error returns err with a redacted text. The result unwraps to err.
func Error(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if safe := Text(text); safe != text {
		return &redacted{text: safe, err: err}
	}
	return err
}

type redacted struct {
	text string
	err  error
}

func (e *redacted) Error() string { return e.text }

func (e *redacted) Unwrap() error { return e.err }

// address redacts one URL, and keeps the punctuation after it.
func address(url string) string {
	bare := strings.TrimRight(url, ".,;:!)]}")
	end := url[len(bare):]
	if i := strings.IndexAny(bare, "?#"); i >= 0 {
		bare = bare[:i+1] + hidden
	}
	return user.ReplaceAllString(bare, "://"+hidden+"@") + end
}

// The patterns are compiled once, because every pass redacts every status.
var (
	// user matches the user information before a host.
	user = regexp.MustCompile(`://[^/]*@`)
	// absolute matches a URL up to its end in a sentence or quotation.
	absolute = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'<>\\` + "`" + `]+`)
	// query matches the query of a URL without a scheme.
	query = regexp.MustCompile(`(\?)[\w.%~\[\]-]+=[^\s"'<>\\` + "`" + `]*`)
	// signed matches a parameter with a signature or token, also outside a URL.
	signed = regexp.MustCompile(`(?i)(\b(?:x-(?:amz|goog|oss|cos|ms)-[a-z-]*|sig|signature|access_token|awsaccesskeyid|key-pair-id))` +
		`=[^\s&,;"'<>\\` + "`" + `]+`)
	bearer = regexp.MustCompile(`(?i)\b(bearer) [\w.~+/-]{16,}=*`)
)
