// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cosign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// signature is a signature stored next to an artifact. Nothing in it is trusted before a key verifies the message.
type signature struct {
	message, value []byte
	// subjects returns the digests in the message, or an error if it is not the signature of an artifact.
	subjects func() ([]string, error)
	// bundle is the whole bundle; empty for other signatures.
	bundle []byte
}

// verify returns nil if one of the keys has signed the digest.
func (r Requirement) verify(digest string, found []signature, broken []error) error {
	problems := slices.Clone(broken)
	for _, one := range found {
		isSigned := slices.ContainsFunc(r.Keys, func(key Key) bool { return key.hasSigned(one.message, one.value) })
		if !isSigned {
			continue
		}
		subjects, err := one.subjects()
		switch {
		case err != nil:
			problems = append(problems, err)
		case !slices.Contains(subjects, digest):
			problems = append(problems, fmt.Errorf("the key signed %.200q instead of %s", subjects, digest))
		default:
			return nil
		}
	}
	switch {
	case len(problems) > 0:
		return fmt.Errorf("no signature made with the key of %s could be verified: %w", r.Field, problems[0])
	case len(found) == 0:
		return fmt.Errorf("it has no signature, and %s requires one: sign the digest with cosign sign --key", r.Field)
	default:
		return fmt.Errorf("none of its signatures (%d) was made with the key of %s: sign the digest with that key, or correct the key",
			len(found), r.Field)
	}
}

// verifyIdentity returns a function that checks whether the identity signed a digest. Only the verifier parses the
// bundle, because two parsers may read it differently.
func (r Requirement) verifyIdentity(ctx context.Context, verifier Verifier) func(digest string, found []signature, broken []error) error {
	return func(digest string, found []signature, broken []error) error {
		problems, bundles := slices.Clone(broken), 0
		for _, one := range found {
			if one.bundle == nil {
				continue
			}
			bundles++
			err := verifier.Verify(ctx, Question{
				Bundle: one.bundle, Digest: strings.TrimPrefix(digest, "sha256:"), PredicateType: signPredicate,
				Issuer: r.Identity.Issuer, Subject: r.Identity.Subject, SubjectRegExp: r.Identity.SubjectRegExp,
			})
			if _, isAway := errors.AsType[*VerifierError](err); isAway || err == nil {
				return err
			}
			problems = append(problems, err)
		}
		switch {
		case len(problems) > 0:
			return fmt.Errorf("no signature by the identity of %s could be verified: %w", r.Field, problems[len(problems)-1])
		case len(found) > bundles:
			return fmt.Errorf("it has no signature bundle, and %s requires one: sign the digest with cosign 3, or with cosign 2.6 and --new-bundle-format", r.Field)
		default:
			return fmt.Errorf("it has no signature, and %s requires one: sign the digest with cosign sign", r.Field)
		}
	}
}

// simpleSigningType is the type of a signature at a tag, as in cosign's SIGNATURE_SPEC.md. As the specification
// requires, simpleSigning ignores the reference in the message.
const simpleSigningType = "cosign container image signature"

func simpleSigning(message []byte) ([]string, error) {
	var payload struct {
		Critical struct {
			Type  string `json:"type"`
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
		} `json:"critical"`
	}
	if err := json.Unmarshal(message, &payload); err != nil {
		return nil, fmt.Errorf("its payload is not JSON: %w", err)
	}
	if payload.Critical.Type != simpleSigningType {
		return nil, fmt.Errorf("its payload has the type %.100q, not %q", payload.Critical.Type, simpleSigningType)
	}
	return []string{payload.Critical.Image.Digest}, nil
}

// A bundle has an in-toto statement in a DSSE envelope. Only the predicate of `cosign sign` makes it a signature:
// another attestation by the same key may say that the artifact is vulnerable.
const (
	statementType = "application/vnd.in-toto+json"
	signPredicate = "https://sigstore.dev/cosign/sign/v1"
)

// bundle is a signature in the form of cosign 3: a bundle of Sigstore's protobuf-specs, version 0.1 or later.
type bundle struct {
	Envelope *struct {
		Payload     []byte `json:"payload"`
		PayloadType string `json:"payloadType"`
		Signatures  []struct {
			Value []byte `json:"sig"`
		} `json:"signatures"`
	} `json:"dsseEnvelope"`
}

// parseBundle returns the signature in a bundle.
func parseBundle(content []byte) (signature, error) {
	var b bundle
	if err := json.Unmarshal(content, &b); err != nil {
		return signature{}, fmt.Errorf("a bundle is not JSON: %w", err)
	}
	if b.Envelope == nil || b.Envelope.PayloadType != statementType || len(b.Envelope.Signatures) != 1 {
		return signature{}, errors.New("a bundle lacks an in-toto statement with exactly one signature")
	}
	payload := b.Envelope.Payload
	return signature{
		// This is the pre-authentication encoding of DSSE v1.
		message:  fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(statementType), statementType, len(payload), payload),
		value:    b.Envelope.Signatures[0].Value,
		subjects: func() ([]string, error) { return statement(payload) },
		bundle:   content,
	}, nil
}

func statement(payload []byte) ([]string, error) {
	var said struct {
		PredicateType string `json:"predicateType"`
		Subject       []struct {
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
	}
	if err := json.Unmarshal(payload, &said); err != nil {
		return nil, fmt.Errorf("its statement is not JSON: %w", err)
	}
	if said.PredicateType != signPredicate {
		return nil, fmt.Errorf("its statement has the predicate type %.100q instead of %q", said.PredicateType, signPredicate)
	}
	var digests []string
	for _, subject := range said.Subject {
		digests = append(digests, "sha256:"+subject.Digest["sha256"])
	}
	return digests, nil
}
