// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
)

// Algorithm names how a Digest is computed.
type Algorithm string

const (
	// SHA256 is the plain hash of the content: the oid of a large file (LFS).
	SHA256 Algorithm = "sha256"
	// GitBlob is git's object name, sha1("blob <size>\x00" + content): the only digest of files small enough to be
	// in git itself. SHA-1 is weak against forgery, but weights are large and have a SHA256.
	GitBlob Algorithm = "git-blob"
)

// Digest is the expected hash of a file's content. The zero value is no digest.
type Digest struct {
	Algorithm Algorithm `json:"algorithm"`
	Hex       string    `json:"hex"`
}

// IsZero reports whether there is nothing to compare with.
func (d Digest) IsZero() bool { return d == Digest{} }

func (d Digest) String() string { return string(d.Algorithm) + ":" + d.Hex }

// NewHash starts the computation for a file of the given size.
func (d Digest) NewHash(size int64) hash.Hash {
	if d.Algorithm == GitBlob {
		h := sha1.New()
		fmt.Fprintf(h, "blob %d\x00", size)
		return h
	}
	return sha256.New()
}

// Check compares a finished hash, and returns a ChecksumError when it differs.
func (d Digest) Check(f File, h hash.Hash) error {
	got := hex.EncodeToString(h.Sum(nil))
	if got == d.Hex {
		return nil
	}
	return &ChecksumError{File: f, Want: d, Got: got}
}

// ParseSHA256 reads 64 hexadecimal digits in either case.
func ParseSHA256(s string) (Digest, error) {
	lower := strings.ToLower(s)
	if !isHex(lower, 2*sha256.Size) {
		return Digest{}, fmt.Errorf("%q is not a SHA-256: want %d hexadecimal digits", s, 2*sha256.Size)
	}
	return Digest{Algorithm: SHA256, Hex: lower}, nil
}

// IsCommit reports whether a revision names a commit itself, and so can never
// mean anything else later.
func IsCommit(revision string) bool { return isHex(revision, 2*sha1.Size) }

func isHex(s string, length int) bool {
	if len(s) != length {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}
