// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
)

// TrustAlso lets a client of NewHTTPClient trust the authorities in a PEM file besides the system's: for a hub
// inside a company, or a proxy that inspects connections.
func TrustAlso(client *http.Client, pem []byte) error {
	transport, ok := client.Transport.(*http.Transport)
	if !ok {
		return errors.New("hub: NewHTTPClient did not make the client")
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool() // an image without any
	}
	if !roots.AppendCertsFromPEM(pem) {
		return errors.New("it has no certificate: give PEM blocks that begin with BEGIN CERTIFICATE")
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return nil
}
