// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// NotFoundError is returned if the hub has no such repository, revision or file. A retry does not help.
type NotFoundError struct {
	File File
	// Missing is the absent part: "repository", "revision", "file", or "resource" if the hub does not distinguish
	// them.
	Missing string
	// Message is the hub's own explanation, possibly empty.
	Message string
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("hub: %s: %s not found%s", e.File, e.Missing, explained(e.Message))
}

// UnauthorizedError is returned if the hub denies a file to this client. A hub also answers this way to hide the
// existence of a repository.
type UnauthorizedError struct {
	File   File
	Status int
	// Gated is set if the repository exists and the token's owner has not accepted its conditions.
	Gated bool
	// TokenSent distinguishes a token without access from a missing token.
	TokenSent bool
	// Message is the hub's own explanation, possibly empty.
	Message string
}

func (e *UnauthorizedError) Error() string {
	return fmt.Sprintf("hub: %s: access refused (%s)%s", e.File, statusText(e.Status), explained(e.Message))
}

// UnreachableError is returned if no useful answer came: the network failed, or the server is overloaded or broken. A
// later retry may help.
type UnreachableError struct {
	// Endpoint has the scheme, host and path prefix of the failed server.
	Endpoint string
	// File is zero if the failure is not about a file.
	File File
	// Status is the HTTP status; 0 if there was none.
	Status int
	// RetryAfter is the pause that the server demands; 0 if it demands none.
	RetryAfter time.Duration
	Err        error
}

func (e *UnreachableError) Error() string {
	about := "hub: "
	if e.File != (File{}) {
		about += e.File.String() + ": "
	}
	if e.Err == nil {
		return fmt.Sprintf("%s%s answered %s", about, e.Endpoint, statusText(e.Status))
	}
	return fmt.Sprintf("%s%s: %v", about, e.Endpoint, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// MalformedError is returned if an answer is not the requested content: a portal's page instead of the hub's API, or a
// damaged file. Other files of the same hub may be intact. A later request may succeed.
type MalformedError struct {
	// Endpoint has the scheme, host and path prefix of the answering server.
	Endpoint string
	File     File
	Err      error
}

func (e *MalformedError) Error() string {
	return fmt.Sprintf("hub: %s: %s: %v", e.File, e.Endpoint, e.Err)
}

func (e *MalformedError) Unwrap() error { return e.Err }

// TooLargeError is returned if an answer exceeds the limit of its kind. A retry does not help.
type TooLargeError struct {
	File File
	// What names the part that is too large: "file", "header" or "answer".
	What  string
	Limit int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("hub: %s: the %s is larger than the limit of %d bytes", e.File, e.What, e.Limit)
}

// Again reports whether a retry may succeed, and the pause that the hub demands before the retry.
func Again(err error) (after time.Duration, ok bool) {
	if away, ok := errors.AsType[*UnreachableError](err); ok {
		return away.RetryAfter, true
	}
	_, ok = errors.AsType[*MalformedError](err)
	return 0, ok
}

// ChecksumError is returned if all bytes arrived, but their hash differs from the one that the hub or the caller gave.
type ChecksumError struct {
	File File
	Want Digest
	Got  string
}

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("hub: %s: %s is %s, want %s", e.File, e.Want.Algorithm, e.Got, e.Want.Hex)
}

func statusText(status int) string {
	if text := http.StatusText(status); text != "" {
		return fmt.Sprintf("%d %s", status, text)
	}
	return fmt.Sprintf("status %d", status)
}

func explained(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}
