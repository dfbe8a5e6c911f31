// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/router"
	"github.com/modelberth/modelberth/pkg/router/scaler"
)

// ScalerOptions are the options of the port for KEDA.
type ScalerOptions struct {
	// Address is the address of the port; empty if KEDA does not ask this router.
	Address string
	// Insecure: no TLS.
	Insecure bool
	// CertDir has tls.crt and tls.key. If it is empty, the router uses a self-signed certificate.
	CertDir string
	// VerifyClients admits only clients with a certificate of the authority in ca.crt of CertDir.
	VerifyClients bool
	// Peers is the address of a headless Service with all routers, HOST:PORT; empty if there is only one router.
	Peers string
}

func (o *ScalerOptions) validate() error {
	switch {
	case o.Address == "" && *o != ScalerOptions{}:
		return errors.New("--scaler-insecure, --scaler-cert-dir, --scaler-verify-clients and --scaler-peers need --scaler-bind-address")
	case o.Insecure && (o.CertDir != "" || o.VerifyClients):
		return errors.New("--scaler-cert-dir and --scaler-verify-clients have no effect with --scaler-insecure: remove them, or --scaler-insecure")
	case o.VerifyClients && o.CertDir == "":
		return errors.New("--scaler-verify-clients needs --scaler-cert-dir, with ca.crt")
	}
	return nil
}

// scalers serves KEDA. Its zero value does nothing.
type scalers struct {
	server      *grpc.Server
	scaler      *scaler.Server
	peers       *scaler.Peers
	address     string
	certificate func(context.Context) error
}

const (
	// scalerConnections is the most connections of KEDA and other routers. scalerStreams is the most questions of one of
	// them at once: KEDA has one open for each trigger of the type external-push.
	scalerConnections = 256
	scalerStreams     = 8192
	// scalerMessage is the largest question in bytes.
	scalerMessage = 64 << 10
	// scalerGrace is how long KEDA may take to leave.
	scalerGrace = 5 * time.Second
)

// newScalers returns a server for KEDA, if the options set an address.
func newScalers(
	o *ScalerOptions, front *router.Router, directory router.Directory, isReady func() bool, log *slog.Logger,
) (*scalers, error) {
	if o.Address == "" {
		return &scalers{}, nil
	}
	out := &scalers{address: o.Address}
	serving, asking := insecure.NewCredentials(), insecure.NewCredentials()
	out.certificate = func(context.Context) error { return nil }
	if !o.Insecure {
		config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
		var err error
		if out.certificate, err = certify(config, o.CertDir); err != nil {
			return nil, fmt.Errorf("the certificate for KEDA: %w", err)
		}
		client, err := o.trust(config)
		if err != nil {
			return nil, err
		}
		serving, asking = credentials.NewTLS(config), credentials.NewTLS(client)
	}
	var err error
	if out.peers, err = scaler.NewPeers(o.Peers, asking, clock.RealClock{}); err != nil {
		return nil, err
	}
	out.scaler, err = scaler.New(scaler.Parts{
		Demands: front, Directory: directory, Others: out.peers, Log: log, Clock: clock.RealClock{}, IsReady: isReady,
	})
	if err != nil {
		return nil, err
	}
	out.server = grpc.NewServer(grpc.Creds(serving),
		grpc.MaxRecvMsgSize(scalerMessage), grpc.MaxConcurrentStreams(scalerStreams),
		grpc.MaxHeaderListSize(16<<10), grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: 5 * time.Minute, Time: time.Minute, Timeout: 20 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}))
	out.scaler.Register(out.server)
	return out, nil
}

// trust adds the check of clients to the configuration of the port, and returns the configuration for other routers. They
// have the same certificate. Without an authority, each router signs its own, which proves nothing.
func (o *ScalerOptions) trust(serving *tls.Config) (*tls.Config, error) {
	//nolint:gosec // VerifyConnection verifies, if anybody can
	client := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}
	authority := filepath.Join(o.CertDir, "ca.crt")
	if o.CertDir == "" {
		return client, nil
	}
	if _, err := os.Stat(authority); err != nil {
		if o.VerifyClients {
			return nil, fmt.Errorf("--scaler-verify-clients needs the authority's certificate, ca.crt in --scaler-cert-dir: %w", err)
		}
		return client, nil
	}
	client.VerifyConnection = verifies(authority, x509.ExtKeyUsageServerAuth)
	client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return serving.GetCertificate(&tls.ClientHelloInfo{})
	}
	if o.VerifyClients {
		serving.ClientAuth = tls.RequireAnyClientCert
		serving.VerifyConnection = verifies(authority, x509.ExtKeyUsageClientAuth)
	}
	return client, nil
}

// verifies returns a check that the other side has a certificate of an authority. It reads the authority at each
// handshake, because it may be renewed.
func verifies(authority string, usage x509.ExtKeyUsage) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		text, err := os.ReadFile(authority)
		if err != nil {
			return fmt.Errorf("reading the authority: %w", err)
		}
		roots, chain := x509.NewCertPool(), x509.NewCertPool()
		if !roots.AppendCertsFromPEM(text) {
			return fmt.Errorf("%s has no certificate", authority)
		}
		if len(state.PeerCertificates) == 0 {
			return errors.New("the other side has no certificate")
		}
		for _, each := range state.PeerCertificates[1:] {
			chain.AddCert(each)
		}
		options := x509.VerifyOptions{Roots: roots, Intermediates: chain, KeyUsages: []x509.ExtKeyUsage{usage}}
		_, err = state.PeerCertificates[0].Verify(options)
		return err
	}
}

// serve serves until shutdown, or until the context ends.
func (s *scalers) serve(ctx context.Context) error {
	if s.server == nil {
		return nil
	}
	return serveGRPC(ctx, s.server, s.address, scalerConnections, s.certificate)
}

// shutdown ends the streams of KEDA, so that it leaves. Until then the router has to answer the others: its last requests
// count.
func (s *scalers) shutdown(ctx context.Context) {
	if s.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, scalerGrace)
	defer cancel()
	ended := context.AfterFunc(ctx, s.server.Stop)
	defer ended()
	s.scaler.End()
	s.server.GracefulStop()
	s.peers.Close()
}

// serveGRPC serves until the server stops, or until the context ends.
func serveGRPC(ctx context.Context, server *grpc.Server, address string, connections int, certificate func(context.Context) error) error {
	listener, err := bind(ctx, address, connections)
	if err != nil {
		return err
	}
	ended := context.AfterFunc(ctx, server.Stop)
	defer ended()
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return certificate(groupCtx) })
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, grpc.ErrServerStopped) && err != nil {
			return fmt.Errorf("serving on %s: %w", address, err)
		}
		return http.ErrServerClosed // ends the reload of the certificate
	})
	if err := group.Wait(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
