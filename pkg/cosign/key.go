// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cosign

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// maxKeys limits the comparisons of each signature. maxRSABits limits the time of a check.
const (
	maxKeys    = 10
	minRSABits = 2048
	maxRSABits = 8192
)

// Key is a public key.
type Key struct{ public crypto.PublicKey }

// ParseKeys reads public keys in PEM, as in cosign.pub.
func ParseKeys(text string) ([]Key, error) {
	var keys []Key
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "PUBLIC KEY" {
			return nil, fmt.Errorf("it has a PEM block %q: give blocks that begin with BEGIN PUBLIC KEY, as in cosign.pub", block.Type)
		}
		public, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, errors.New("its PEM block is not a public key: give the contents of cosign.pub")
		}
		if err := check(public); err != nil {
			return nil, err
		}
		keys = append(keys, Key{public})
	}
	switch {
	case len(keys) == 0:
		return nil, errors.New("it has no PEM block that begins with BEGIN PUBLIC KEY: give the contents of cosign.pub")
	case len(keys) > maxKeys:
		return nil, fmt.Errorf("it has %d keys: give at most %d", len(keys), maxKeys)
	}
	return keys, nil
}

func check(public crypto.PublicKey) error {
	switch key := public.(type) {
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() {
			return fmt.Errorf("its key is on the curve %s: use P-256, as cosign generate-key-pair does", key.Curve.Params().Name)
		}
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return fmt.Errorf("its RSA key has %d bits: use %d to %d", bits, minRSABits, maxRSABits)
		}
	case ed25519.PublicKey:
	default:
		return fmt.Errorf("its key has the unsupported type %T: use ECDSA on P-256, RSA or Ed25519", public)
	}
	return nil
}

// hasSigned reports whether this key made a signature of a message. ECDSA and RSA (PKCS #1 v1.5) sign its SHA-256, and
// Ed25519 signs the message itself.
func (k Key) hasSigned(message, signature []byte) bool {
	sum := sha256.Sum256(message)
	switch key := k.public.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(key, sum[:], signature)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) == nil
	case ed25519.PublicKey:
		return ed25519.Verify(key, message, signature)
	default:
		return false
	}
}
