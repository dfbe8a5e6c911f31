// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package llamacpp

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/pkg/engine"
)

// adapters returns the flags for adapters. They have a scale if any adapter's strength is not 1. The server separates
// files by commas, and a file from its strength by a colon.
func adapters(in engine.Input) []engine.Setting {
	if len(in.Adapters) == 0 {
		return nil
	}
	flag := "lora"
	if slices.ContainsFunc(in.Adapters, func(a engine.Adapter) bool { return a.Strength != 1 }) {
		flag = "lora-scaled"
	}
	files := make([]string, 0, len(in.Adapters))
	for _, a := range in.Adapters {
		file := path.Join(a.Dir, a.Path)
		if flag == "lora-scaled" {
			file += ":" + strconv.FormatFloat(a.Strength, 'f', -1, 64)
		}
		files = append(files, file)
	}
	return []engine.Setting{{Name: flag, Value: strings.Join(files, ",")}}
}

// checkAdapters rejects adapters without a file name, because the server loads a GGUF file, not a directory.
func checkAdapters(in engine.Input) error {
	for _, a := range in.Adapters {
		if !strings.HasSuffix(a.Path, ".gguf") {
			return fmt.Errorf("inference.adapters: engine llamacpp loads %s from one GGUF file: name that file in path, such as adapter.gguf", a.Name)
		}
	}
	return nil
}

// adapterWarnings describes how this server's adapters differ from the usual.
func adapterWarnings(in engine.Input) []string {
	if len(in.Adapters) == 0 {
		return nil
	}
	return []string{"inference.adapters: engine llamacpp applies all adapters to each request, unless the request selects some with its field lora, " +
		"and does not list them in /v1/models"}
}
