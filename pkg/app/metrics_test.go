// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/modelberth/modelberth/pkg/options"
)

// TestMissingCertificateIsAnError checks that a missing file is an error. Otherwise the server would use a self-signed
// certificate, and Prometheus would not trust it.
func TestMissingCertificateIsAnError(t *testing.T) {
	if _, err := metricsOptions(options.Metrics{CertDir: t.TempDir()}); err == nil {
		t.Error("no error without tls.crt and tls.key")
	}
}
