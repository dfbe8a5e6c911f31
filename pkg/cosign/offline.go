// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cosign

import (
	"errors"
	"slices"
)

// Signed returns the digest that a signature at a tag signs. payload is the signed message, and value its signature. It
// returns an error unless one of the keys made the signature. It does not contact a registry.
func Signed(keys []Key, payload, value []byte) (string, error) {
	if !slices.ContainsFunc(keys, func(key Key) bool { return key.hasSigned(payload, value) }) {
		return "", errors.New("the signature was made with none of the trusted keys")
	}
	digests, err := simpleSigning(payload)
	if err != nil {
		return "", err
	}
	return digests[0], nil
}
