// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/pkg/review"
)

// metricsOptions returns options to serve metrics over TLS, to users with the right to get /metrics.
func metricsOptions(o options.Metrics) (metricsserver.Options, error) {
	out := metricsserver.Options{BindAddress: o.Address}
	if o.Insecure {
		return out, nil
	}
	if o.CertDir != "" { // if a file were missing, the server would use a self-signed certificate
		_, err := tls.LoadX509KeyPair(filepath.Join(o.CertDir, "tls.crt"), filepath.Join(o.CertDir, "tls.key"))
		if err != nil {
			return out, fmt.Errorf("reading the certificate for metrics in %s: %w", o.CertDir, err)
		}
	}
	out.SecureServing, out.CertDir, out.FilterProvider = true, o.CertDir, newMetricsFilter
	out.TLSOpts = []func(*tls.Config){func(config *tls.Config) {
		config.MinVersion = tls.VersionTLS12
		// Not HTTP/2, because one connection could open and reset any number of streams (CVE-2023-44487).
		config.NextProtos = []string{"http/1.1"}
	}}
	return out, nil
}

// newMetricsFilter returns the authorization of scrapes. It has a separate rate limit, so that scrapes do not slow down
// the controllers.
func newMetricsFilter(config *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
	reviews, err := review.ForScrapes(config, httpClient)
	if err != nil {
		return nil, err
	}
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		return reviews.Guard(next, func(err error) { log.Error(err, "cannot check the access to metrics") }), nil
	}, nil
}
