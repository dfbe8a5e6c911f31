// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/router"
	"github.com/modelberth/modelberth/pkg/router/extproc"
)

// gateways serves gateways. Its zero value serves none.
type gateways struct {
	server      *grpc.Server
	picker      *extproc.Server
	address     string
	certificate func(context.Context) error
}

// connectionAge is how long a connection of a gateway takes new requests.
const connectionAge = 10 * time.Minute

// gatewayConnections is the most connections of gateways. Each carries many requests.
const gatewayConnections = 1000

// newGateways returns a server for gateways, if the options set an address.
func newGateways(o *Options, front *router.Router, log *slog.Logger) (*gateways, error) {
	if o.ExtProcAddress == "" {
		return &gateways{}, nil
	}
	out := &gateways{address: o.ExtProcAddress, certificate: func(context.Context) error { return nil }}
	out.picker = extproc.New(extproc.Settings{
		MaxStreams: o.MaxConnections, BodyTimeout: o.Settings.BodyTimeout, Deadline: o.Settings.Deadline,
	}, front, log, clock.RealClock{})
	options := []grpc.ServerOption{
		// A window of this size is fixed. grpc would otherwise enlarge it to 16 MiB for each request, outside of the
		// memory for bodies.
		grpc.InitialWindowSize(64 << 10), grpc.InitialConnWindowSize(1 << 20),
		grpc.MaxConcurrentStreams(uint32(min(o.MaxConnections, 1<<31-1))), //nolint:gosec // it is above 0
		grpc.MaxHeaderListSize(32 << 10), grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: time.Minute, Timeout: 20 * time.Second,
			// A gateway may keep one connection, and so one router, for all its requests.
			MaxConnectionAge: connectionAge, MaxConnectionAgeGrace: o.Settings.Deadline,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
	if !o.ExtProcInsecure {
		config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
		var err error
		if out.certificate, err = certify(config, o.ExtProcCertDir); err != nil {
			return nil, fmt.Errorf("the certificate for gateways: %w", err)
		}
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	out.server = grpc.NewServer(options...)
	out.picker.Register(out.server)
	return out, nil
}

// onSync returns a function that marks the router as synced.
func (g *gateways) onSync(isSynced *atomic.Bool) func() {
	return func() { isSynced.Store(true); g.setReady(true) }
}

// setReady sets the answer of the health checks.
func (g *gateways) setReady(isReady bool) {
	if g.picker != nil {
		g.picker.SetReady(isReady)
	}
}

// serve serves until shutdown, or until the context ends.
func (g *gateways) serve(ctx context.Context) error {
	if g.server == nil {
		return nil
	}
	return serveGRPC(ctx, g.server, g.address, gatewayConnections, g.certificate)
}

// shutdown ends after the last request, or when the context ends.
func (g *gateways) shutdown(ctx context.Context) error {
	if g.server == nil {
		return nil
	}
	ended := context.AfterFunc(ctx, g.server.Stop)
	defer ended()
	g.server.GracefulStop()
	return ctx.Err()
}
