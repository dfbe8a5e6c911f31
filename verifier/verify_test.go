// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"google.golang.org/protobuf/encoding/protojson"
)

const (
	issuer    = "https://accounts.example"
	subject   = "https://ci.example/models/release.yml@refs/tags/v1"
	predicate = "https://sigstore.dev/cosign/sign/v1"
)

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// statement about the digest of a text.
func statement(text string) []byte {
	return fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":%q}}],"predicateType":%q,"predicate":{}}`,
		digestOf(text), predicate)
}

// authority is a Sigstore of its own.
func authority(t *testing.T) *ca.VirtualSigstore {
	t.Helper()
	out, err := ca.NewVirtualSigstore()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// trust is the file with an authority's roots; with the log of certificates if that is wanted.
func trust(t *testing.T, of *ca.VirtualSigstore, withCertificateLog bool) string {
	t.Helper()
	logs := withIDs(t, of.CTLogs())
	if !withCertificateLog {
		logs = nil
	}
	trusted, err := root.NewTrustedRoot(root.TrustedRootMediaType01, of.FulcioCertificateAuthorities(), logs,
		of.TimestampingAuthorities(), withIDs(t, of.RekorLogs()))
	if err != nil {
		t.Fatal(err)
	}
	content, err := trusted.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "trusted_root.json")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// withIDs mends the logs of the library's test authority, whose ids are text.
func withIDs(t *testing.T, logs map[string]*root.TransparencyLog) map[string]*root.TransparencyLog {
	t.Helper()
	for text, log := range logs {
		id, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		log.ID = id
	}
	return logs
}

// signed is a bundle over a statement that an authority has certified, logged at a time.
func signed(t *testing.T, by *ca.VirtualSigstore, statement []byte, at time.Time) *protobundle.Bundle {
	t.Helper()
	entity, err := by.AttestAtTime(subject, issuer, statement, at, true)
	if err != nil {
		t.Fatal(err)
	}
	verification, err := entity.VerificationContent()
	if err != nil {
		t.Fatal(err)
	}
	content, err := entity.SignatureContent()
	if err != nil {
		t.Fatal(err)
	}
	stamps, err := entity.Timestamps()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := entity.TlogEntries()
	if err != nil {
		t.Fatal(err)
	}
	material := &protobundle.VerificationMaterial{
		Content:                   &protobundle.VerificationMaterial_Certificate{Certificate: &protocommon.X509Certificate{RawBytes: verification.Certificate().Raw}},
		TimestampVerificationData: &protobundle.TimestampVerificationData{},
	}
	for _, entry := range entries {
		material.TlogEntries = append(material.TlogEntries, promised(t, by, entry.TransparencyLogEntry()))
	}
	for _, stamp := range stamps {
		material.TimestampVerificationData.Rfc3161Timestamps = append(material.TimestampVerificationData.Rfc3161Timestamps,
			&protocommon.RFC3161SignedTimestamp{SignedTimestamp: stamp})
	}
	return &protobundle.Bundle{
		MediaType: "application/vnd.dev.sigstore.bundle.v0.3+json", VerificationMaterial: material,
		Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{
			Payload: statement, PayloadType: "application/vnd.in-toto+json",
			Signatures: []*protodsse.Signature{{Sig: content.Signature()}},
		}},
	}
}

// promised completes an entry with what the library's test authority keeps to itself.
func promised(t *testing.T, by *ca.VirtualSigstore, entry *protorekor.TransparencyLogEntry) *protorekor.TransparencyLogEntry {
	t.Helper()
	promise, err := by.RekorSignPayload(tlog.RekorPayload{
		Body: base64.StdEncoding.EncodeToString(entry.CanonicalizedBody), IntegratedTime: entry.IntegratedTime,
		LogIndex: entry.LogIndex, LogID: hex.EncodeToString(entry.LogId.KeyId),
	})
	if err != nil {
		t.Fatal(err)
	}
	entry.KindVersion = &protorekor.KindVersion{Kind: "dsse", Version: "0.0.1"}
	entry.InclusionPromise = &protorekor.InclusionPromise{SignedEntryTimestamp: promise}
	return entry
}

func encoded(t *testing.T, of *protobundle.Bundle) []byte {
	t.Helper()
	out, err := protojson.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestVerifySignature: a bundle counts for its identity, digest and kind of statement alone.
func TestVerifySignature(t *testing.T) {
	ours, foreign := authority(t), authority(t)
	soon := time.Now().Add(5 * time.Minute) // certificates are valid for ten minutes
	valid := encoded(t, signed(t, ours, statement("model"), soon))
	changed := func(change func(*protobundle.Bundle)) []byte {
		b := signed(t, ours, statement("model"), soon)
		change(b)
		return encoded(t, b)
	}
	right := request{Bundle: valid, Digest: digestOf("model"), PredicateType: predicate, Issuer: issuer, Subject: subject}
	asking := func(change func(*request)) request {
		out := right
		change(&out)
		return out
	}
	with := func(bundle []byte) request { return asking(func(r *request) { r.Bundle = bundle }) }
	pattern := func(of string) request {
		return asking(func(r *request) { r.Subject, r.SubjectRegExp = "", of })
	}
	roots, logged := trust(t, ours, false), trust(t, ours, true)
	for _, tc := range []struct {
		reason  string
		roots   string
		request request
		want    string // part of the problem; empty where there is none
	}{
		{"valid", roots, right, ""},
		{"the subject as a pattern", roots, pattern(`https://ci\.example/models/.*`), ""},
		{"a pattern that matches a part only", roots, pattern(`https://ci\.example/models/`), "certificate identity"},
		{"an alternative at the end of a pattern", roots, pattern(`nobody|release`), "certificate identity"},
		{"another issuer", roots, asking(func(r *request) { r.Issuer = "https://else.example" }), "certificate identity"},
		{"another subject", roots, asking(func(r *request) { r.Subject = "https://else.example" }), "certificate identity"},
		{"another digest", roots, asking(func(r *request) { r.Digest = digestOf("else") }), "digest"},
		{"another kind of statement", roots, asking(func(r *request) { r.PredicateType = "https://slsa.dev/provenance/v1" }), "its statement has the predicate type"},
		{"a foreign root", trust(t, foreign, false), right, "log inclusion"},
		{"no proof of the certificate's log, which the roots name", logged, right, "signed certificate timestamp"},
		{"a payload that was changed", roots, with(changed(func(b *protobundle.Bundle) {
			b.GetDsseEnvelope().Payload = statement("else")
		})), "transparency log"},
		{"a signature that was changed", roots, with(changed(func(b *protobundle.Bundle) {
			b.GetDsseEnvelope().Signatures[0].Sig[8] ^= 1
		})), "transparency log"},
		{"no entry of a transparency log", roots, with(changed(func(b *protobundle.Bundle) {
			b.VerificationMaterial.TlogEntries = nil
		})), "log inclusion"},
		{"a certificate of another signature", roots, with(changed(func(b *protobundle.Bundle) {
			other := signed(t, ours, statement("model"), soon)
			b.VerificationMaterial.Content = other.VerificationMaterial.Content
		})), "transparency log"},
		{"logged after the certificate had expired, without a timestamp", roots, with(func() []byte {
			late := signed(t, ours, statement("model"), time.Now().Add(50*time.Minute))
			late.VerificationMaterial.TimestampVerificationData = nil
			return encoded(t, late)
		}()), "outside certificate validity"},
		{"signed with a key", roots, with(changed(func(b *protobundle.Bundle) {
			b.VerificationMaterial.Content = &protobundle.VerificationMaterial_PublicKey{PublicKey: &protocommon.PublicKeyIdentifier{Hint: "k"}}
		})), "transparency log certificate"},
		{"no bundle", roots, with([]byte(`{}`)), "it is not a bundle"},
		{"no JSON", roots, with([]byte("PK\x03\x04")), "it is not a bundle"},
		{"a member twice", roots, with(append(bytes.TrimSuffix(bytes.Clone(valid), []byte("}")), `,"mediaType":"x"}`...)), "it is not a bundle"},
		{"an unknown member", roots, with(append(bytes.TrimSuffix(bytes.Clone(valid), []byte("}")), `,"DSSEENVELOPE":{}}`...)), "it is not a bundle"},
		{"a pattern that is none", roots, pattern(`(`), "using the identity"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			trusted, err := readTrustedRoot(tc.roots)
			if err != nil {
				t.Fatal(err)
			}
			switch err := verifySignature(trusted, tc.request); {
			case (err == nil) != (tc.want == ""):
				t.Errorf("verifySignature: %v, want %q", err, tc.want)
			case err != nil && !strings.Contains(err.Error(), tc.want):
				t.Errorf("verifySignature: %v, want it to mention %q", err, tc.want)
			}
		})
	}
}

func TestReadTrustedRoot(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct{ reason, content, want string }{
		{"empty", "", "has no roots of trust"},
		{"no JSON", "PEM", "has no roots of trust"},
		{"nobody", `{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}`, "must name"},
		{"oversized", strings.Repeat(" ", maxTrustedRoot+1), "more than"},
	} {
		path := filepath.Join(dir, tc.reason)
		if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readTrustedRoot(path); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.reason, err, tc.want)
		}
	}
	if _, err := readTrustedRoot(filepath.Join(dir, "absent")); err == nil {
		t.Error("a file that is not there is read")
	}
}
