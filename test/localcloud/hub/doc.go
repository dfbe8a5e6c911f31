// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hub is a Hugging Face-compatible hub in one http.Handler: it serves a few files from memory as the real one
// does, with commits, trees, checksums in headers, redirects to a content store for large files, and byte ranges. It
// breaks on request, so an end-to-end test can take it down in the middle of a download.
//
// It decides how a hub answers, well and badly. It must not know the files' meaning, their readers, or its cluster.
//
// Requests from tests:
//
//	POST   /admin/faults  {"faults":[{…}]}  replaces all faults (see Fault)
//	GET    /admin/faults                    shows them
//	DELETE /admin/faults                    heals the hub
//	GET    /admin/stats                     {"requests":N,"sentBytes":N}, without /admin itself
package hub
