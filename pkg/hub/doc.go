// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hub implements the read side of the Hugging Face Hub's HTTP API, as any server behind HF_ENDPOINT serves
// it: the commit of a revision, the size and hash of a file, any byte range of it, and the conditions of a
// repository. Package describe reads the model in it.
//
// It decides the meaning of an answer (absent, forbidden, unreachable), where the token may go, and when a silent
// connection counts as dead. It must not know the purpose of a file, its place on disk or whether to retry: it has
// no retries, no disk and no Kubernetes, and it logs nothing, so no token can leak through it.
//
// The facts of the wire (routes, X-Repo-Commit, X-Linked-Etag, X-Linked-Size,
// X-Error-Code, the Link header of a long tree, redirects to other hosts) are
// those of the Hub's public documentation and of its own client, huggingface_hub.
package hub
