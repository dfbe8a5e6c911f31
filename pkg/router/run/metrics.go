// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/modelberth/modelberth/pkg/comparison"
	"github.com/modelberth/modelberth/pkg/review"
	"github.com/modelberth/modelberth/pkg/router"
)

// metricsServer returns a server for metrics, and for the comparisons that the controller reads, over TLS. Users need
// the right to get these paths, because the answers name models and keys of all tenants. The returned function reloads
// the certificate until its context ends.
func metricsServer(
	o *Options, registry *prometheus.Registry, compared func() comparison.Report, reviews *review.Reviews, log *slog.Logger,
) (*http.Server, func(context.Context) error, error) {
	mux := http.NewServeMux()
	metrics, comparisons := promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}), serves(compared)
	nothing := func(context.Context) error { return nil }
	if !o.MetricsInsecure {
		if reviews == nil {
			return nil, nil, errors.New("nothing checks who may read the metrics")
		}
		failed := func(err error) { log.Error("cannot check the access to metrics", "error", err.Error()) }
		metrics, comparisons = reviews.Guard(metrics, failed), reviews.Guard(comparisons, failed, comparison.Audience)
		mux.Handle("/", reviews.Guard(http.NotFoundHandler(), failed))
	}
	mux.Handle("GET /metrics", metrics)
	mux.Handle("GET "+comparison.Path, comparisons)
	server := router.Server(mux)
	if o.MetricsInsecure {
		return server, nothing, nil
	}
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	reload, err := certify(server.TLSConfig, o.MetricsCertDir)
	if err != nil {
		return nil, nil, fmt.Errorf("the certificate for metrics: %w", err)
	}
	return server, reload, nil
}

// certify adds the certificate in a directory to a configuration, or a self-signed one if there is no directory. The
// returned function reloads the certificate until its context ends.
func certify(config *tls.Config, dir string) (func(context.Context) error, error) {
	if dir == "" {
		own, err := selfSigned()
		if err != nil {
			return nil, fmt.Errorf("signing: %w", err)
		}
		config.Certificates = []tls.Certificate{own}
		return func(context.Context) error { return nil }, nil
	}
	watcher, err := certwatcher.New(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", dir, err)
	}
	config.GetCertificate = watcher.GetCertificate
	return watcher.Start, nil
}

// serves returns a handler of the comparisons, as JSON.
func serves(compared func() comparison.Report) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(compared()) // the client has left
	})
}

// selfSigned returns a self-signed certificate. Clients cannot verify it, but it hides their tokens from
// eavesdroppers.
func selfSigned() (tls.Certificate, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certificate, key)
}
