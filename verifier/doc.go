// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command modelberth-verifier verifies keyless signatures of artifacts: Sigstore bundles with a certificate of an
// authority that the administrator trusts. It runs beside the controller and answers on a Unix socket.
//
// It decides whether a bundle was signed by an identity for a digest. It connects to nothing: the controller brings the
// bundle, and a file the roots of trust. It is a module of its own because the libraries that it needs are larger than the
// controller's share of them would justify (docs/adr/0014-verified-weights.md).
package main
