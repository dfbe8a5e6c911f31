// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package oci reads model files from an artifact in an image registry, as if it were a repository of a hub. A layer
// with a title is a file, its digest is the checksum, and the manifest's digest is the commit. The package also fetches
// the layers of an image, and then unpacks them.
//
// It decides which layers are files. It must not know their use.
package oci
