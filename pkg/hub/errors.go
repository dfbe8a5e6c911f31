// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// NotFoundError says that the hub has no such repository, revision or file.
// Asking again does not help.
type NotFoundError struct {
	File File
	// Missing is what is absent: "repository", "revision", "file", or
	// "resource" where the hub does not tell them apart.
	Missing string
	// Message is the hub's own explanation, possibly empty.
	Message string
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("hub: %s: %s not found%s", e.File, e.Missing, explained(e.Message))
}

// UnauthorizedError says that the hub refuses the file to whoever is asking.
// A hub that wants to hide whether a repository exists answers so, too.
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

// UnreachableError says that no useful answer came: the network failed, or the
// server is overloaded or broken. Asking again later may help.
type UnreachableError struct {
	// Endpoint is scheme, host and path prefix of the server that failed.
	Endpoint string
	// File is zero where the failure is not about one.
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

// MalformedError says that an answer came and is not what was asked for: a
// portal's page instead of the hub's API, or a damaged file. Other files of the
// same hub may be whole. Asking again later may help.
type MalformedError struct {
	// Endpoint is scheme, host and path prefix of the server that answered.
	Endpoint string
	File     File
	Err      error
}

func (e *MalformedError) Error() string {
	return fmt.Sprintf("hub: %s: %s: %v", e.File, e.Endpoint, e.Err)
}

func (e *MalformedError) Unwrap() error { return e.Err }

// TooLargeError says that an answer is larger than what is read of its kind.
// Asking again does not help.
type TooLargeError struct {
	File File
	// What of the file is too large: "file", "header" or "answer".
	What  string
	Limit int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("hub: %s: the %s is larger than %d bytes, the most that is read", e.File, e.What, e.Limit)
}

// Again reports whether an error may go away when the hub is asked again, and
// how long the hub wants to be left alone.
func Again(err error) (after time.Duration, ok bool) {
	if away, ok := errors.AsType[*UnreachableError](err); ok {
		return away.RetryAfter, true
	}
	_, ok = errors.AsType[*MalformedError](err)
	return 0, ok
}

// ChecksumError says that bytes arrived whole and are not the file that the
// hub, or the caller, promised.
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
