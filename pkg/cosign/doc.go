// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cosign verifies that a key or an identity has signed an artifact of a registry with cosign, and returns the digest
// that was signed.
//
// It decides which signatures count: those below the tag sha256-DIGEST.sig, and bundles that refer to the digest. It
// must not know whose keys they are, or what the artifact holds. It reads no certificate, transparency log or timestamp: a
// program of its own verifies signatures of identities (docs/adr/0014-verified-weights.md).
package cosign
