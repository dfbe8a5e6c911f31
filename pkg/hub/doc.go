// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hub speaks the read side of the Hugging Face Hub's HTTP API, as any
// server behind HF_ENDPOINT serves it: which commit a revision names, how large
// a file is and what it hashes to, any byte range of it, and under which
// conditions a repository is published. What its model is, package describe
// says.
//
// It decides what an answer means (absent, forbidden, out of reach), where the
// token may travel, and when a silent connection counts as dead.
// It must not know why a file is wanted, where it is stored or whether to try
// again: there is no retry, no disk and no Kubernetes in here, and it logs
// nothing, so that no token can leak through it.
//
// The facts of the wire (routes, X-Repo-Commit, X-Linked-Etag, X-Linked-Size,
// X-Error-Code, the Link header of a long tree, redirects to other hosts) are
// those of the Hub's public documentation and of its own client, huggingface_hub.
package hub
