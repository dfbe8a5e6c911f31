// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"errors"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/progress"
)

// Reason returns the reason of a condition about machines if an error prevents their purchase.
func Reason(err error) string {
	if stalled, ok := errors.AsType[*progress.StalledError](err); ok {
		return stalled.Reason
	}
	if waiting, ok := errors.AsType[*progress.WaitingError](err); ok {
		return cmp.Or(waiting.Reason, v1beta1.ReasonNodeClaimNotReady)
	}
	return v1beta1.ReasonReconcileFailed
}
