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

// Algorithm is the hash algorithm of a Digest.
type Algorithm string

const (
	// SHA256 is the plain hash of the content. Large files (LFS) have it as their oid.
	SHA256 Algorithm = "sha256"
	// GitBlob is git's object name, sha1("blob <size>\x00" + content). Small files in git itself have no other digest.
	// SHA-1 is weak against forgery, but weights are large and have a SHA256.
	GitBlob Algorithm = "git-blob"
)

// Digest is the expected hash of a file's content. The zero value means that there is none.
type Digest struct {
	Algorithm Algorithm `json:"algorithm"`
	Hex       string    `json:"hex"`
}

// IsZero reports whether there is no digest.
func (d Digest) IsZero() bool { return d == Digest{} }

func (d Digest) String() string { return string(d.Algorithm) + ":" + d.Hex }

// NewHash returns a hash to compute the digest of a file with the given size.
func (d Digest) NewHash(size int64) hash.Hash {
	if d.Algorithm == GitBlob {
		h := sha1.New()
		fmt.Fprintf(h, "blob %d\x00", size)
		return h
	}
	return sha256.New()
}

// Check compares a finished hash with the digest. It returns a ChecksumError if they differ.
func (d Digest) Check(f File, h hash.Hash) error {
	got := hex.EncodeToString(h.Sum(nil))
	if got == d.Hex {
		return nil
	}
	return &ChecksumError{File: f, Want: d, Got: got}
}

// ParseSHA256 parses 64 hexadecimal digits, in upper or lower case.
func ParseSHA256(s string) (Digest, error) {
	lower := strings.ToLower(s)
	if !isHex(lower, 2*sha256.Size) {
		return Digest{}, fmt.Errorf("%q is not a SHA-256: give %d hexadecimal digits", s, 2*sha256.Size)
	}
	return Digest{Algorithm: SHA256, Hex: lower}, nil
}

// IsCommit reports whether a revision is a commit hash. Unlike a branch or tag, it always means the same content.
func IsCommit(revision string) bool { return isHex(revision, 2*sha1.Size) }

func isHex(s string, length int) bool {
	if len(s) != length {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}
