// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"flag"
)

// Metrics has the settings for serving the controller's metrics.
type Metrics struct {
	// Address is the endpoint's address; 0 turns the endpoint off.
	Address string
	// Insecure serves metrics over plain HTTP to any client.
	Insecure bool
	// CertDir has the server certificate, as tls.crt and tls.key; empty means a self-signed certificate.
	CertDir string
}

func (m *Metrics) bind(flags *flag.FlagSet) {
	flags.StringVar(&m.Address, "metrics-bind-address", ":8443", "address of the metrics endpoint; 0 turns the endpoint off")
	flags.BoolVar(&m.Insecure, "metrics-insecure", false,
		"serve metrics over plain HTTP without authentication; by default, over HTTPS to clients with the RBAC "+
			"permission to get /metrics")
	flags.StringVar(&m.CertDir, "metrics-cert-dir", "",
		"directory with tls.crt and tls.key for metrics; default: a self-signed certificate")
}

func (m *Metrics) validate() []error {
	if m.Insecure && m.CertDir != "" {
		return []error{errors.New("--metrics-cert-dir has no effect with --metrics-insecure: remove one of them")}
	}
	return nil
}
