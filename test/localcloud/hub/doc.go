// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hub is a Hugging Face-compatible hub in one http.Handler: it serves a
// few files from memory as the real one does (commits, trees, checksums in
// headers, large files by a redirect to a content store, byte ranges), and
// breaks on request, so that an end-to-end test can take it down while a model
// is being fetched.
//
// It decides how a hub answers, well and badly. It must not know what the files
// are, who fetches them, or anything of the cluster that it runs in.
//
// Requests that tests send:
//
//	POST   /admin/faults  {"faults":[{…}]}  replaces all faults (see Fault)
//	GET    /admin/faults                    shows them
//	DELETE /admin/faults                    heals the hub
//	GET    /admin/stats                     {"requests":N,"sentBytes":N}, without /admin itself
package hub
