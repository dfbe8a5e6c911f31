// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package redact removes secrets from texts that quote URLs: registries and stores answer with signed URLs,
// which HTTP clients quote in their errors.
//
// It decides what of a URL may be shown: scheme, host and path. It must not know who quotes it.
package redact

import (
	"regexp"
	"strings"
)

// hidden stands for what was removed.
const hidden = "…"

// Text returns a text without the user information, query and fragment of each URL in it, and without
// queries and bearer tokens that stand alone.
func Text(text string) string {
	if strings.Contains(text, "://") {
		text = absolute().ReplaceAllStringFunc(text, address)
	}
	if strings.Contains(text, "=") {
		text = query().ReplaceAllString(text, "${1}"+hidden)
		text = signed().ReplaceAllString(text, "${1}="+hidden)
	}
	return bearer().ReplaceAllString(text, "${1} "+hidden)
}

// Error returns err with its text redacted. It unwraps to err.
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

// address redacts one URL, and keeps the punctuation of the sentence that it ends.
func address(url string) string {
	bare := strings.TrimRight(url, ".,;:!)]}")
	end := url[len(bare):]
	if i := strings.IndexAny(bare, "?#"); i >= 0 {
		bare = bare[:i+1] + hidden
	}
	return user().ReplaceAllString(bare, "://"+hidden+"@") + end
}

// user matches what stands before a host.
func user() *regexp.Regexp { return regexp.MustCompile(`://[^/]*@`) }

// absolute matches a URL up to what ends it in a sentence or a quoted text.
func absolute() *regexp.Regexp {
	return regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'<>\\` + "`" + `]+`)
}

// query matches the query of a URL without a scheme.
func query() *regexp.Regexp { return regexp.MustCompile(`(\?)[\w.%~\[\]-]+=[^\s"'<>\\` + "`" + `]*`) }

// signed matches a parameter that signs a URL, wherever it stands.
func signed() *regexp.Regexp {
	const names = `x-(?:amz|goog|oss|cos|ms)-[a-z-]*|sig|signature|access_token|awsaccesskeyid|key-pair-id`
	return regexp.MustCompile(`(?i)(\b(?:` + names + `))=[^\s&,;"'<>\\` + "`" + `]+`)
}

func bearer() *regexp.Regexp { return regexp.MustCompile(`(?i)\b(bearer) [\w.~+/-]{16,}=*`) }
