// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"crypto/tls"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// TestServesGateways starts a router with a self-signed certificate: a gateway does not verify it.
func TestServesGateways(t *testing.T) {
	address := free(t)
	r := startWith(t, func(http.ResponseWriter, *http.Request) {}, func(o *Options) { o.ExtProcAddress = address })
	creds := credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}) //nolint:gosec // as gateways do
	client, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	health := healthv1.NewHealthClient(client)
	watch, err := health.Watch(ctx, &healthv1.HealthCheckRequest{Service: "readiness"}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	until := func(want healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for {
			answer, err := watch.Recv()
			if err != nil {
				t.Fatalf("waiting for %s: %v", want, err)
			}
			if answer.GetStatus() == want {
				return
			}
		}
	}
	until(healthv1.HealthCheckResponse_NOT_SERVING)
	close(r.cluster.synced)
	until(healthv1.HealthCheckResponse_SERVING)
	r.end()
	until(healthv1.HealthCheckResponse_NOT_SERVING) // while it drains
	cancel()                                        // a graceful end waits for this stream
	if err := <-r.result; err != nil {
		t.Error(err)
	}
}
