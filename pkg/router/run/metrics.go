// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/modelberth/modelberth/pkg/review"
	"github.com/modelberth/modelberth/pkg/router"
)

// metricsServer returns a server for metrics over TLS. Users need the right to get /metrics, because the metrics name
// models and keys of all tenants. The returned function reloads the certificate until its context ends.
func metricsServer(
	o *Options, registry *prometheus.Registry, reviews *review.Reviews, log *slog.Logger,
) (*http.Server, func(context.Context) error, error) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	nothing := func(context.Context) error { return nil }
	if o.MetricsInsecure {
		return router.Server(mux), nothing, nil
	}
	if reviews == nil {
		return nil, nil, errors.New("nothing checks who may read the metrics")
	}
	server := router.Server(reviews.Guard(mux, func(err error) {
		log.Error("cannot check the access to metrics", "error", err.Error())
	}))
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if o.MetricsCertDir == "" {
		own, err := selfSigned()
		if err != nil {
			return nil, nil, fmt.Errorf("signing a certificate for metrics: %w", err)
		}
		server.TLSConfig.Certificates = []tls.Certificate{own}
		return server, nothing, nil
	}
	watcher, err := certwatcher.New(filepath.Join(o.MetricsCertDir, "tls.crt"), filepath.Join(o.MetricsCertDir, "tls.key"))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the certificate for metrics in %s: %w", o.MetricsCertDir, err)
	}
	server.TLSConfig.GetCertificate = watcher.GetCertificate
	return server, watcher.Start, nil
}

// selfSigned returns a self-signed certificate. Clients cannot verify it, but it hides their tokens from passive
// listeners.
func selfSigned() (tls.Certificate, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certificate, key)
}
