// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package oci reads model files from an artifact in an image registry, as if it were a repository of a hub: a layer
// with a title is a file, its digest the checksum, the manifest's digest the commit. The layers of an image are fetched in
// the same way, and unpacked then.
//
// It decides which layers are files. It must not know their use.
package oci
