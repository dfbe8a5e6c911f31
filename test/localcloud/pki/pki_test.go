// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestIssue(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	authority, err := NewAuthority("test", now)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority.Cert) {
		t.Fatal("the authority's certificate is none")
	}
	client, server := x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth
	for _, test := range []struct {
		reason  string
		subject Subject
		host    string
		usage   x509.ExtKeyUsage
		at      time.Time
		fails   bool
	}{
		{reason: "a client", subject: Subject{User: "me", Groups: []string{"g"}}, usage: client, at: now},
		{reason: "a client is no server", subject: Subject{User: "me"}, usage: server, at: now, fails: true},
		{reason: "a server by address", subject: Subject{User: "s", Hosts: []string{"10.0.0.1"}}, host: "10.0.0.1", usage: server, at: now},
		{reason: "a server by name, and a client at once", subject: Subject{User: "s", Hosts: []string{"a.b"}}, host: "a.b", usage: client, at: now},
		{reason: "not another server", subject: Subject{User: "s", Hosts: []string{"a.b"}}, host: "c.d", usage: server, at: now, fails: true},
		{reason: "not for ever", subject: Subject{User: "me"}, usage: client, at: now.Add(lifetime + time.Hour), fails: true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			pair, err := authority.Issue(test.subject)
			if err != nil {
				t.Fatal(err)
			}
			loaded, err := tls.X509KeyPair(pair.Cert, pair.Key)
			if err != nil {
				t.Fatalf("certificate and key do not belong together: %v", err)
			}
			_, err = loaded.Leaf.Verify(x509.VerifyOptions{
				Roots: roots, DNSName: test.host, CurrentTime: test.at, KeyUsages: []x509.ExtKeyUsage{test.usage},
			})
			if (err != nil) != test.fails {
				t.Errorf("verification says %v, want a failure: %v", err, test.fails)
			}
			if diff := cmp.Diff(test.subject.Groups, loaded.Leaf.Subject.Organization); diff != "" || loaded.Leaf.Subject.CommonName != test.subject.User {
				t.Errorf("it is for %s (-want +got groups):\n%s", loaded.Leaf.Subject.CommonName, diff)
			}
		})
	}
}

func TestKeyPair(t *testing.T) {
	private, public, err := KeyPair()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(private)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	block, _ = pem.Decode(public)
	half, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !key.PublicKey.Equal(half) {
		t.Error("the halves do not belong together")
	}
}
