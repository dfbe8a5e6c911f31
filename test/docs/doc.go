// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs tests the documentation: its names exist, its links lead somewhere, and its commands and manifests work.
//
// It decides nothing. It must not know more of the code than a reader of the documentation.
package docs
