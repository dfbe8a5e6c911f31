// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cosign

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// Fingerprint returns the same text for the same requirements, whatever their order and fields; empty for none. roots
// identifies the roots of trust for identities.
func Fingerprint(required []Requirement, roots string) (string, error) {
	var encoded []string
	for _, requirement := range required {
		text, err := encode(requirement, roots)
		if err != nil {
			return "", err
		}
		encoded = append(encoded, text)
	}
	if len(encoded) == 0 {
		return "", nil
	}
	slices.Sort(encoded)
	text, err := json.Marshal(slices.Compact(encoded))
	if err != nil {
		return "", fmt.Errorf("encoding the requirements: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// encode returns a requirement's keys or identity as text, without its field.
func encode(requirement Requirement, roots string) (string, error) {
	what := struct {
		Keys     [][]byte  `json:"keys,omitempty"`
		Identity *Identity `json:"identity,omitempty"`
		Roots    string    `json:"roots,omitempty"`
	}{Identity: requirement.Identity}
	if requirement.Identity != nil {
		what.Roots = roots
	}
	for _, key := range requirement.Keys {
		der, err := x509.MarshalPKIXPublicKey(key.public)
		if err != nil {
			return "", fmt.Errorf("encoding a public key: %w", err)
		}
		what.Keys = append(what.Keys, der)
	}
	slices.SortFunc(what.Keys, slices.Compare)
	what.Keys = slices.CompactFunc(what.Keys, slices.Equal)
	text, err := json.Marshal(what)
	if err != nil {
		return "", fmt.Errorf("encoding the requirements: %w", err)
	}
	return string(text), nil
}
