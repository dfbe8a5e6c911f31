// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs tests the documentation: that it names what there is, that its links lead somewhere,
// and that its commands and manifests are ones that work.
//
// It decides nothing. It must not know more of the code than a reader of the documentation is told.
package docs
