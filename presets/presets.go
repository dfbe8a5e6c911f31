// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package presets embeds the shipped facts: GPUs, machine types, models, engines and their published runs, as YAML
// files with sources.
//
// It decides nothing and must not know the meaning of the files; package catalog decodes and checks them.
package presets

import (
	"embed"
	"io/fs"
)

//go:embed gpus.yaml objectives.yaml quantizations.yaml engines/*.yaml measurements/*.yaml models/*.yaml skus/*.yaml
var files embed.FS

// FS returns the files.
func FS() fs.FS {
	return files
}
