// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
)

// maxTrustedRoot bounds the file of the roots, in bytes: a ConfigMap holds no more.
const maxTrustedRoot = 1 << 20

// readTrustedRoot reads the roots of trust from a file in Sigstore's format. Without an authority and a transparency log,
// nothing could be verified.
func readTrustedRoot(path string) (root.TrustedMaterial, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the roots of trust: %w", err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxTrustedRoot+1))
	if err != nil {
		return nil, fmt.Errorf("reading the roots of trust: %w", err)
	}
	if len(content) > maxTrustedRoot {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxTrustedRoot)
	}
	trusted, err := root.NewTrustedRootFromJSON(content)
	if err != nil {
		return nil, fmt.Errorf("%s has no roots of trust: %w", path, err)
	}
	if len(trusted.FulcioCertificateAuthorities()) == 0 || len(trusted.RekorLogs()) == 0 {
		return nil, fmt.Errorf("%s must name a certificate authority and a transparency log", path)
	}
	return trusted, nil
}

// verifySignature returns nil if the identity has signed the digest. The proof needs no network: it is the entry of a
// transparency log, and a time signed by the log or a timestamping authority. If the roots name a log of certificates,
// the certificate must be in it.
func verifySignature(trusted root.TrustedMaterial, asked request) error {
	var signed bundle.Bundle
	if err := signed.UnmarshalJSON(asked.Bundle); err != nil {
		return fmt.Errorf("it is not a bundle: %w", err)
	}
	options := []verify.VerifierOption{verify.WithTransparencyLog(1), verify.WithObserverTimestamps(1)}
	if len(trusted.CTLogs()) > 0 {
		options = append(options, verify.WithSignedCertificateTimestamps(1))
	}
	return verifyEntity(trusted, &signed, asked, options...)
}

func verifyEntity(trusted root.TrustedMaterial, signed verify.SignedEntity, asked request, options ...verify.VerifierOption) error {
	verifier, err := verify.NewVerifier(trusted, options...)
	if err != nil {
		return fmt.Errorf("using the roots of trust: %w", err)
	}
	pattern := ""
	if asked.SubjectRegExp != "" {
		pattern = `^(?:` + asked.SubjectRegExp + `)$`
	}
	identity, err := verify.NewShortCertificateIdentity(asked.Issuer, "", asked.Subject, pattern)
	if err != nil {
		return fmt.Errorf("using the identity: %w", err)
	}
	digest, err := hex.DecodeString(asked.Digest)
	if err != nil {
		return fmt.Errorf("using the digest: %w", err)
	}
	result, err := verifier.Verify(signed, verify.NewPolicy(
		verify.WithArtifactDigest("sha256", digest), verify.WithCertificateIdentity(identity)))
	switch {
	case err != nil:
		return err
	case result.Statement == nil:
		return errors.New("it has no in-toto statement")
	case result.Statement.GetPredicateType() != asked.PredicateType:
		return fmt.Errorf("its statement has the predicate type %.100q instead of %q",
			result.Statement.GetPredicateType(), asked.PredicateType)
	}
	return nil
}
