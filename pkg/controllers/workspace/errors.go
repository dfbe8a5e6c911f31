// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/lookup"
)

// stalledError means that nothing more happens until the user, or the administrator, acts.
type stalledError struct {
	// reason is one of the API's reasons.
	reason string
	// message says what to do.
	message string
	// retryAfter asks for a look from time to time, where no watch tells of the cure.
	retryAfter time.Duration
}

func (e *stalledError) Error() string { return e.reason + ": " + e.message }

// waitingError means that the world must move first.
type waitingError struct {
	message string
	// reason is one of the API's reasons; empty where nothing is wrong.
	reason string
	// after asks for a look after that time; 0 where a watch tells.
	after time.Duration
	// isBrief asks for a look in a moment: what is in the way is about to pass. Where it does not, less and less often.
	isBrief bool
}

func (e *waitingError) Error() string { return e.message }

// behindOn means that the cache has yet to show something that the API server has.
func behindOn(what string) error {
	return &waitingError{message: "waiting for the cache to show the newest " + what, isBrief: true}
}

// Looks from time to time at what no watch covers.
const (
	retryTaken       = time.Minute
	retryProvisioner = time.Minute
	retrySecret      = 30 * time.Second
	retryTerminating = 2 * time.Second
	retryRelease     = time.Minute
	retryClass       = time.Minute
	retryHub         = time.Minute
	retrySilence     = time.Minute
)

// classify gives an error of an effect its kind; others stay transient.
func classify(err error) error {
	var taken *apply.TakenError
	var claimTaken *capacity.TakenError
	var terminating *apply.TerminatingError
	var missing *capacity.NotInstalledError
	var busy *lookup.BusyError
	switch {
	case errors.As(err, &busy):
		return &waitingError{message: busy.Error(), isBrief: true}
	case errors.As(err, &taken):
		return &stalledError{reason: v1beta1.ReasonNameTaken, message: taken.Error(), retryAfter: retryTaken}
	case errors.As(err, &claimTaken):
		return &stalledError{reason: v1beta1.ReasonNameTaken, message: claimTaken.Error(), retryAfter: retryTaken}
	case errors.As(err, &terminating):
		return &waitingError{message: terminating.Error(), after: retryTerminating}
	case errors.As(err, &missing):
		return &stalledError{
			reason: v1beta1.ReasonProvisionerNotInstalled, message: missing.Error(), retryAfter: retryProvisioner,
		}
	case apierrors.IsInvalid(err):
		return &stalledError{reason: v1beta1.ReasonSpecInvalid, message: root(err).Error()}
	default:
		return err
	}
}
