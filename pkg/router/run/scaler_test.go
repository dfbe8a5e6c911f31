// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	out := &authority{}
	out.certificate, out.key = sign(t, nil, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	})
	return out
}

// sign returns a certificate of an authority, or a self-signed one.
func sign(t *testing.T, by *authority, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.certificate, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return out, key
}

// issue writes tls.crt, tls.key and ca.crt into a new directory.
func (a *authority) issue(t *testing.T, usages ...x509.ExtKeyUsage) string {
	t.Helper()
	certificate, key := sign(t, a, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "scaler"}, DNSNames: []string{"router.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: usages,
	})
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: certificate.Raw}, "tls.key": {Type: "EC PRIVATE KEY", Bytes: der},
		"ca.crt": {Type: "CERTIFICATE", Bytes: a.certificate.Raw},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// pair loads a directory's certificate.
func pair(t *testing.T, dir string) tls.Certificate {
	t.Helper()
	out, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ask returns the code of a question without a namespace: InvalidArgument if the router answers.
func ask(t *testing.T, address string, creds credentials.TransportCredentials) codes.Code {
	t.Helper()
	client, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return status.Code(client.Invoke(ctx, "/externalscaler.ExternalScaler/IsActive", &emptypb.Empty{}, &emptypb.Empty{}))
}

// answers waits until the router answers a client, or returns the last code.
func answers(t *testing.T, address string, creds credentials.TransportCredentials) codes.Code {
	t.Helper()
	got := codes.Unknown
	for until := time.Now().Add(patience); time.Now().Before(until); {
		if got = ask(t, address, creds); got == codes.InvalidArgument {
			return got
		}
	}
	return got
}

// TestScalerCertificates: who may ask, in each way to secure the port.
func TestScalerCertificates(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	serving := ours.issue(t, both...)
	roots := x509.NewCertPool()
	roots.AddCert(ours.certificate)
	with := func(dirs ...string) credentials.TransportCredentials {
		config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: "router.example"}
		for _, dir := range dirs {
			config.Certificates = append(config.Certificates, pair(t, dir))
		}
		return credentials.NewTLS(config)
	}
	blind := credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}) //nolint:gosec // as unsafeSsl of KEDA
	cases := []struct {
		reason  string
		options ScalerOptions
		may     credentials.TransportCredentials
		mayNot  map[string]credentials.TransportCredentials
	}{
		{"no TLS", ScalerOptions{Insecure: true}, insecure.NewCredentials(), nil},
		{"a certificate of its own", ScalerOptions{}, blind, map[string]credentials.TransportCredentials{"one who verifies it": with(), "one without TLS": insecure.NewCredentials()}},
		{"a certificate of a Secret", ScalerOptions{CertDir: serving}, with(), nil},
		{"certificates of clients", ScalerOptions{CertDir: serving, VerifyClients: true}, with(ours.issue(t, both...)), map[string]credentials.TransportCredentials{
			"one without a certificate":              with(),
			"one of another authority":               with(theirs.issue(t, both...)),
			"one with a certificate only of servers": with(ours.issue(t, x509.ExtKeyUsageServerAuth)),
		}},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			c.options.Address = free(t)
			r := startWith(t, func(http.ResponseWriter, *http.Request) {}, func(o *Options) { o.Scaler, o.DrainDelay = c.options, 0 })
			if got := answers(t, c.options.Address, c.may); got != codes.InvalidArgument {
				t.Errorf("the router answers %s", got)
			}
			for who, creds := range c.mayNot {
				if got := ask(t, c.options.Address, creds); got != codes.Unavailable {
					t.Errorf("the router answers %s with %s", who, got)
				}
			}
			r.end()
			if err := <-r.result; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRoutersTrustEachOther: the connection between routers proves both sides.
func TestRoutersTrustEachOther(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	cases := []struct {
		reason            string
		listening, asking ScalerOptions
		want              bool
	}{
		{"one authority", ScalerOptions{CertDir: ours.issue(t, both...), VerifyClients: true}, ScalerOptions{CertDir: ours.issue(t, both...), VerifyClients: true}, true},
		{"an impostor", ScalerOptions{CertDir: theirs.issue(t, both...)}, ScalerOptions{CertDir: ours.issue(t, both...)}, false},
		{"a stranger", ScalerOptions{CertDir: ours.issue(t, both...), VerifyClients: true}, ScalerOptions{CertDir: theirs.issue(t, both...)}, false},
		{"certificates of their own", ScalerOptions{}, ScalerOptions{}, true},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			var config net.ListenConfig
			listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = listener.Close() }()
			configs := make([]*tls.Config, 2)
			for i, o := range []ScalerOptions{c.listening, c.asking} {
				serving := &tls.Config{MinVersion: tls.VersionTLS12}
				if _, err := certify(serving, o.CertDir); err != nil {
					t.Fatal(err)
				}
				asking, err := o.trust(serving)
				if err != nil {
					t.Fatal(err)
				}
				configs[i] = []*tls.Config{serving, asking}[i]
			}
			ended := make(chan error, 1)
			go func() {
				conn, err := listener.Accept()
				if err == nil {
					_ = conn.SetDeadline(time.Now().Add(patience))
					_, err = io.ReadFull(tls.Server(conn, configs[0]), make([]byte, 1)) // a client with TLS 1.3 learns of its refusal later
					_ = conn.Close()
				}
				ended <- err
			}()
			dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: configs[1]}
			conn, err := dialer.DialContext(t.Context(), "tcp", listener.Addr().String())
			if err == nil {
				_, err = conn.Write([]byte{1})
				defer func() { _ = conn.Close() }()
			}
			if isTrusted := <-ended == nil && err == nil; isTrusted != c.want {
				t.Errorf("trusted: %v (%v), want %v", isTrusted, err, c.want)
			}
		})
	}
}

// TestScalerAnswersWhileDraining: the last requests of a router that ends are part of the sums of the others.
func TestScalerAnswersWhileDraining(t *testing.T) {
	address, finish := free(t), make(chan struct{})
	r := startWith(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		<-finish
	}, func(o *Options) {
		o.Scaler, o.DrainDelay = ScalerOptions{Address: address, Insecure: true}, 10*time.Millisecond
	})
	close(r.cluster.synced)
	eventually(t, http.StatusOK, r.options.ProbeAddress, "/readyz")
	long := post(t, r.options.Address)
	if _, err := long.body.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	r.end()
	eventually(t, 0, r.options.Address, "/v1/models")
	if got := ask(t, address, insecure.NewCredentials()); got != codes.InvalidArgument {
		t.Errorf("while a request runs, the router answers %s", got)
	}
	close(finish)
	if err := <-r.result; err != nil {
		t.Error(err)
	}
	if got := ask(t, address, insecure.NewCredentials()); got != codes.Unavailable {
		t.Errorf("after the last request, the router answers %s", got)
	}
}
