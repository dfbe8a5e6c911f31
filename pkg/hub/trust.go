// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
)

// TrustAlso makes a client of NewHTTPClient trust the certificate authorities in a PEM file, besides the system's. A
// hub inside a company or a proxy that inspects connections needs this.
func TrustAlso(client *http.Client, pem []byte) error {
	transport, ok := client.Transport.(*http.Transport)
	if !ok {
		return errors.New("hub: NewHTTPClient did not make the client")
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool() // the image has no system authorities
	}
	if !roots.AppendCertsFromPEM(pem) {
		return errors.New("it has no certificate: give PEM blocks that begin with BEGIN CERTIFICATE")
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return nil
}
