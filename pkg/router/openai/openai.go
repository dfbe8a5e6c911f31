// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package openai has the error answers of the router, in the format of OpenAI's API.
//
// It decides the status, the type and the code of each error. It must not know how a request is routed.
package openai

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"
)

// Codes of errors.
const (
	CodeInvalidBody      = "invalid_body"
	CodeMissingModel     = "missing_model"
	CodeBodyTooLarge     = "body_too_large"
	CodeInvalidKey       = "invalid_api_key"
	CodeModelNotAllowed  = "model_not_allowed"
	CodeModelNotFound    = "model_not_found"
	CodeModelUnavailable = "model_unavailable"
	CodeUnknownRoute     = "unknown_route"
	CodeRateLimit        = "rate_limit_exceeded"
	CodeOverloaded       = "router_overloaded"
	CodeDeadline         = "deadline_exceeded"
	CodeEngine           = "engine_error"
	CodeClientClosed     = "client_closed"
	CodeReplicaLost      = "replica_lost"
	CodeUnchecked        = "authentication_unavailable"
	CodeUnknownPool      = "unknown_pool"
)

// Error is an answer to a client.
type Error struct {
	Status  int
	Code    string
	Param   string
	Message string
	// RetryAfter is how long the client should wait before it tries again; 0 means no advice.
	RetryAfter time.Duration
}

func (e *Error) Error() string { return e.Message }

// Errorf returns an error with a message.
func Errorf(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// After returns a copy with a time to wait before the next try.
func (e *Error) After(wait time.Duration) *Error {
	out := *e
	out.RetryAfter = wait
	return &out
}

// kind returns OpenAI's error type for a status.
func kind(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusForbidden:
		return "permission_error"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= http.StatusInternalServerError:
		return "server_error"
	}
	return "invalid_request_error"
}

// Write answers with the error. It forbids proxies to cache the answer.
func Write(w http.ResponseWriter, e *Error) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if e.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	if e.Status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", `Bearer realm="modelberth"`)
	}
	w.WriteHeader(e.Status)
	// Ignore the error: the client may have gone.
	_ = json.NewEncoder(w).Encode(map[string]inner{"error": e.inner()})
}

// WriteEvent ends a stream with the error. OpenAI's clients check the member "error". Anthropic's clients check the
// event and the type.
func WriteEvent(w io.Writer, e *Error) {
	text, err := json.Marshal(struct {
		Type  string `json:"type"`
		Error inner  `json:"error"`
	}{"error", e.inner()})
	if err != nil { // impossible, because all values are strings
		return
	}
	_, _ = fmt.Fprintf(w, "event: error\ndata: %s\n\n", text)
}

// inner is the error object of OpenAI's API.
type inner struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

func (e *Error) inner() inner {
	out := inner{Message: e.Message, Type: kind(e.Status), Code: e.Code}
	if e.Param != "" {
		out.Param = &e.Param
	}
	return out
}
