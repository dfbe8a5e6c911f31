// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cosign verifies that a key or an identity has signed an artifact of a registry with cosign, and returns the
// digest that was signed.
//
// It decides which signatures count: those at the tag sha256-DIGEST.sig, and bundles that refer to the digest. It must
// not know who owns the keys, or what the artifact contains. It reads no certificate, transparency log or timestamp: a
// separate program verifies signatures of identities (docs/adr/0014-verified-weights.md).
package cosign
