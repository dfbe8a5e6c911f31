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
	"github.com/modelberth/modelberth/pkg/progress"
)

// Intervals for changes that no watch covers.
const (
	retryTaken       = time.Minute
	retryProvisioner = time.Minute
	retryTerminating = 2 * time.Second
)

// classify turns a known error into a stall or a wait; any other error stays transient.
func classify(err error) error {
	var taken *apply.TakenError
	var claimTaken *capacity.TakenError
	var terminating *apply.TerminatingError
	var missing *capacity.NotInstalledError
	var busy *lookup.BusyError
	switch {
	case errors.As(err, &busy):
		return &progress.WaitingError{Message: busy.Error(), IsBrief: true}
	case errors.As(err, &taken):
		return &progress.StalledError{Reason: v1beta1.ReasonNameTaken, Message: taken.Error(), RetryAfter: retryTaken}
	case errors.As(err, &claimTaken):
		return &progress.StalledError{Reason: v1beta1.ReasonNameTaken, Message: claimTaken.Error(), RetryAfter: retryTaken}
	case errors.As(err, &terminating):
		return &progress.WaitingError{Message: terminating.Error(), After: retryTerminating}
	case errors.As(err, &missing):
		return &progress.StalledError{
			Reason: v1beta1.ReasonProvisionerNotInstalled, Message: missing.Error(), RetryAfter: retryProvisioner,
		}
	case apierrors.IsInvalid(err):
		return &progress.StalledError{Reason: v1beta1.ReasonSpecInvalid, Message: progress.Message(err)}
	default:
		return err
	}
}

// isBrief reports whether an error is a wait that usually ends with the next pass.
func isBrief(err error) bool {
	wait, isWait := errors.AsType[*progress.WaitingError](err)
	return isWait && wait.IsBrief
}
