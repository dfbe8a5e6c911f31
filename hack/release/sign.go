// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// readKey reads an ECDSA private key, in PKCS #8 or in the form of openssl ecparam -genkey.
func readKey(path string) (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("-key: %w", err)
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
			return key, nil
		}
		if parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			if key, ok := parsed.(*ecdsa.PrivateKey); ok {
				return key, nil
			}
		}
	}
	return nil, fmt.Errorf("-key %s holds no unencrypted ECDSA key in PEM: make one with openssl ecparam -name prime256v1 -genkey -noout", path)
}

// sign returns the signature of a message in base64, for cosign verify-blob --key and openssl. Without a source of
// randomness, the signature follows RFC 6979, so the same message has the same signature.
func sign(key *ecdsa.PrivateKey, message []byte) (string, error) {
	sum := sha256.Sum256(message)
	signature, err := key.Sign(nil, sum[:], crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("signing: %w", err)
	}
	return base64.StdEncoding.EncodeToString(signature), nil
}

// Media types and annotations of cosign's signatures, from its SIGNATURE_SPEC.md.
const (
	simpleSigning       = types.MediaType("application/vnd.dev.cosign.simplesigning.v1+json")
	signatureAnnotation = "dev.cosignproject.cosign/signature"
)

// signatureOf returns cosign's image of a digest's signature, and its tag.
func signatureOf(key *ecdsa.PrivateKey, reference string, digest v1.Hash) (img v1.Image, tag string, err error) {
	payload, err := json.Marshal(map[string]any{
		"critical": map[string]any{
			"identity": map[string]string{"docker-reference": reference},
			"image":    map[string]string{"docker-manifest-digest": digest.String()},
			"type":     "cosign container image signature",
		},
		"optional": nil,
	})
	if err != nil {
		return nil, "", err
	}
	signature, err := sign(key, payload)
	if err != nil {
		return nil, "", err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(base, mutate.Addendum{
		Layer:       static.NewLayer(payload, simpleSigning),
		MediaType:   simpleSigning,
		Annotations: map[string]string{signatureAnnotation: signature},
	})
	return img, digest.Algorithm + "-" + digest.Hex + ".sig", err
}

const (
	statementType  = "https://in-toto.io/Statement/v1"
	payloadType    = "application/vnd.in-toto+json"
	provenanceType = "https://slsa.dev/provenance/v1"
	buildType      = "https://modelberth.dev/release/v1"
)

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// provenance writes the commit and the settings that produced the files and images. It is an in-toto statement of SLSA
// provenance in a DSSE envelope, signed if there is a key.
func (r *release) provenance(context.Context) error {
	var subjects []subject
	for _, file := range r.files {
		subjects = append(subjects, subject{file.name, map[string]string{"sha256": file.sha256}})
	}
	for _, content := range r.contents {
		subjects = append(subjects, subject{content.reference, map[string]string{content.digest.Algorithm: content.digest.Hex}})
	}
	statement, err := json.Marshal(map[string]any{
		"_type":         statementType,
		"subject":       subjects,
		"predicateType": provenanceType,
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType":          buildType,
				"externalParameters": map[string]string{"version": r.version, "registry": r.registry},
				"resolvedDependencies": []any{
					map[string]any{"name": "source", "digest": map[string]string{"gitCommit": r.commit}},
				},
			},
			"runDetails": map[string]any{"builder": map[string]string{"id": buildType}},
		},
	})
	if err != nil {
		return err
	}
	signatures := []map[string]string{}
	if r.key != nil {
		// The pre-authentication encoding of DSSE v1.
		signature, err := sign(r.key, fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(statement), statement))
		if err != nil {
			return err
		}
		signatures = append(signatures, map[string]string{"sig": signature})
	}
	envelope, err := json.Marshal(map[string]any{
		"payloadType": payloadType, "payload": base64.StdEncoding.EncodeToString(statement), "signatures": signatures,
	})
	if err != nil {
		return err
	}
	if len(subjects) == 0 {
		return errors.New("nothing was made")
	}
	return r.write("provenance.intoto.jsonl", append(envelope, '\n'))
}
