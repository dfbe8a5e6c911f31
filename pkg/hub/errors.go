// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// NotFoundError is returned if the hub has no such repository, revision or file.
// Asking again does not help.
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

// UnauthorizedError is returned if the hub refuses a file to this client. A hub that hides the existence of a
// repository also answers this way.
type UnauthorizedError struct {
	File   File
	Status int
	// Gated is set when the repository exists and its conditions have not been
	// accepted by the token's owner.
	Gated bool
	// TokenSent tells a missing token from one without access.
	TokenSent bool
	// Message is the hub's own explanation, possibly empty.
	Message string
}

func (e *UnauthorizedError) Error() string {
	return fmt.Sprintf("hub: %s: access refused (%s)%s", e.File, statusText(e.Status), explained(e.Message))
}

// UnreachableError is returned if no useful answer came: the network failed, or the
// server is overloaded or broken. Asking again later may help.
type UnreachableError struct {
	// Endpoint has the scheme, host and path prefix of the failed server.
	Endpoint string
	// File is zero if the failure is not about one.
	File File
	// Status is the HTTP status, 0 when there was none.
	Status int
	// RetryAfter is how long the server asked to be left alone, 0 when it did not say.
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

// MalformedError is returned if an answer is not the requested content: a portal's page instead of the hub's API,
// or a damaged file. Other files of the same hub may be whole. A later request may succeed.
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
	// What is too large: "file", "header" or "answer".
	What  string
	Limit int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("hub: %s: the %s is larger than the limit of %d bytes", e.File, e.What, e.Limit)
}

// Again reports whether a retry may succeed, and the delay that the hub demands before it.
func Again(err error) (after time.Duration, ok bool) {
	if away, ok := errors.AsType[*UnreachableError](err); ok {
		return away.RetryAfter, true
	}
	_, ok = errors.AsType[*MalformedError](err)
	return 0, ok
}

// ChecksumError is returned if all bytes arrived, but not of the file that the hub, or the caller, promised.
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
