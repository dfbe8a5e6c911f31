// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cosign verifies cosign signatures of an artifact in a registry, by a key or an identity. It returns the
// digest that was signed.
//
// It decides which signatures count: those at the tag sha256-DIGEST.sig, and bundles with a reference to the digest. It
// must not know the owners of the keys, or the content of the artifact. It reads no certificate, transparency log or
// timestamp: a separate program verifies signatures of identities (docs/adr/0014-verified-weights.md).
package cosign
