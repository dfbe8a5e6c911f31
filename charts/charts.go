// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package charts embeds the objects of the chart that are the same for every release: the CustomResourceDefinitions and
// the shared admission policies.
package charts

import "embed"

//go:embed modelberth/files/crds/*.yaml modelberth/files/policies/*.yaml
var files embed.FS

// FS returns the files.
func FS() embed.FS { return files }
