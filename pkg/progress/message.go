// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IsWaiting reports whether an error is, or wraps, a *WaitingError.
func IsWaiting(err error) bool {
	_, isWaiting := errors.AsType[*WaitingError](err)
	return isWaiting
}

// Message returns the part of an error for users: the message of a *StalledError, of a *WaitingError or of the API
// server. It drops the errors wrapped around them, which are for logs. It returns the whole text of any other error.
func Message(err error) string {
	var stalled *StalledError
	var waiting *WaitingError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &stalled):
		return stalled.Message
	case errors.As(err, &waiting):
		return waiting.Message
	case errors.As(err, &status):
		return status.Status().Message
	default:
		return err.Error()
	}
}

// Clock formats a time for messages.
func Clock(at time.Time) string { return at.UTC().Format(time.DateTime + " MST") }
