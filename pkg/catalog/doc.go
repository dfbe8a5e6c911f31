// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package catalog decodes the facts about models, machines, GPUs and engines, from the embedded
// presets and from an administrator's overlays, into one immutable Catalog.
//
// It decides whether a file of facts is well formed, and the meaning of a name. It must not know plans, the meaning of
// prices, Kubernetes or the origin of the files.
package catalog
