// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"errors"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Causes of failed passes in the metric.
const (
	// causeForbidden: the API server denies the request; usually a right is missing.
	causeForbidden = "forbidden"
	// causeRejected: the API server or an admission policy rejects an object.
	causeRejected = "rejected"
	// causeOverloaded: the API server demands fewer requests.
	causeOverloaded = "overloaded"
	// causeTimeout: an answer took too long.
	causeTimeout = "timeout"
	// causeServer: the API server failed.
	causeServer = "server"
	// causeNetwork: no connection.
	causeNetwork = "network"
	causeOther   = "other"
)

// causes lists all values of the label.
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
