// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progress classifies the reasons why a pass over an object ends early. Either the user must act
// (StalledError), or something else must happen first (WaitingError). Any other error is transient, and the controller
// retries it with backoff.
//
// It decides nothing about conditions, events or queues. Controllers derive those from the class.
package progress

import (
	"errors"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// StalledError means that somebody must act before a retry can succeed.
type StalledError struct {
	// Reason is a reason of the API.
	Reason string
	// Message names the problem and the remedy.
	Message string
	// RetryAfter is the interval of further passes, for remedies that no watch reports; 0 means none.
	RetryAfter time.Duration
	// Err is the error behind the message; nil if there is none.
	Err error
}

// Error returns the reason and the message.
func (e *StalledError) Error() string { return e.Reason + ": " + e.Message }

// Unwrap returns the error behind the message.
func (e *StalledError) Unwrap() error { return e.Err }

// WaitingError means that something else must happen first. The controller does not log it as an error.
type WaitingError struct {
	Message string
	// Reason is a reason of the API; empty if nothing is wrong.
	Reason string
	// After is the time until another pass; 0 if a watch reports the change.
	After time.Duration
	// IsBrief requests another pass at once, and further ones with backoff while the obstacle stays.
	IsBrief bool
}

// Error returns the message.
func (e *WaitingError) Error() string { return e.Message }

// LacksMoney reports whether an error means to wait for room below a ceiling or in a budget.
func LacksMoney(err error) bool {
	wait, isWaiting := errors.AsType[*WaitingError](err)
	return isWaiting && (wait.Reason == v1beta1.ReasonSpendingCeiling || wait.Reason == v1beta1.ReasonMonthlyBudget)
}

// Behind returns a *WaitingError, because the cache lags behind the API server.
func Behind(what string) error {
	return &WaitingError{Message: "waiting for the cache to show the newest " + what, IsBrief: true}
}

// Invalid returns a *StalledError, because the user must change the spec.
func Invalid(message string) error {
	return &StalledError{Reason: v1beta1.ReasonSpecInvalid, Message: message}
}
