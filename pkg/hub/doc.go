// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hub is a client for the read side of the Hugging Face Hub's HTTP API, which any server behind HF_ENDPOINT
// implements. It returns the commit of a revision, the size and hash of a file, byte ranges of a file, and the
// conditions of a repository. Package describe reads the model of a repository.
//
// It decides the meaning of an answer (absent, forbidden, unreachable), where the token may go, and when a silent
// connection counts as dead. It must not know the purpose of a file, its place on disk or whether to retry: it does not
// retry, touch the disk or use Kubernetes. It logs nothing, so that no token leaks.
//
// The protocol's details (routes, X-Repo-Commit, X-Linked-Etag, X-Linked-Size, X-Error-Code, the Link header of a long
// tree, redirects to other hosts) come from the Hub's public documentation and its own client, huggingface_hub.
package hub
