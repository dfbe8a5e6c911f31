// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"errors"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Causes of failed passes, as label values of the metric.
const (
	// causeForbidden means that the API server denies the request, usually because a permission is missing.
	causeForbidden = "forbidden"
	// causeRejected means that the API server or an admission policy rejects an object.
	causeRejected = "rejected"
	// causeOverloaded means that the API server demands fewer requests.
	causeOverloaded = "overloaded"
	// causeTimeout means that an answer took too long.
	causeTimeout = "timeout"
	// causeServer means that the API server failed.
	causeServer = "server"
	// causeNetwork means that there is no connection.
	causeNetwork = "network"
	causeOther   = "other"
)

// causes returns all values of the label.
func causes() []string {
	return []string{causeForbidden, causeRejected, causeOverloaded, causeTimeout, causeServer, causeNetwork, causeOther}
}

// causeOf returns the cause of an error.
func causeOf(err error) string {
	var ofNetwork net.Error
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		return causeForbidden
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err):
		return causeRejected
	case apierrors.IsTooManyRequests(err):
		return causeOverloaded
	case apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || errors.Is(err, context.DeadlineExceeded):
		return causeTimeout
	case apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err):
		return causeServer
	case errors.As(err, &ofNetwork):
		return causeNetwork
	default:
		return causeOther
	}
}

// Failed counts a failed pass.
func (m *Metrics) Failed(err error) {
	if m != nil {
		m.errors.WithLabelValues(causeOf(err)).Inc()
	}
}
