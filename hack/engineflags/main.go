// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command engineflags compares the flags in an engine's preset with the engine's own help. For a new release, you only
// have to read a short list.
//
//	llama-server --help | go run ./hack/engineflags presets/engines/llamacpp.yaml
//	vllm serve --help=all | go run ./hack/engineflags presets/engines/vllm.yaml
//	go run ./hack/engineflags presets/engines/vllm.yaml arg_utils.py cli_args.py
//
// The last form reads Python sources instead of a help text, if the engine cannot run. It reports nothing about
// spellings that switch a flag off. vLLM's help omits --model, although its parser accepts it.
//
// It prints one line per difference, and ends with exit code 1 if there is any. It decides nothing about kinds of
// values: help texts do not show them reliably.
package main

import (
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/pkg/catalog"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(args []string, help io.Reader, out, errs io.Writer) int {
	differences, err := compareFile(args, help)
	if err != nil {
		fmt.Fprintf(errs, "engineflags: %v\n", err)
		return 2
	}
	for _, difference := range differences {
		fmt.Fprintln(out, difference)
	}
	if len(differences) > 0 {
		return 1
	}
	return 0
}

func compareFile(args []string, help io.Reader) ([]string, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("no arguments: name the preset, then files of the engine's source, or pipe the engine's --help into this command")
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return nil, fmt.Errorf("reading preset: %w", err)
	}
	var preset struct {
		Engines []catalog.Engine `json:"engines"`
	}
	if err := yaml.Unmarshal(data, &preset); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", args[0], err)
	}
	if len(preset.Engines) != 1 {
		return nil, fmt.Errorf("%s lists %d engines: it must list one", args[0], len(preset.Engines))
	}
	flags := preset.Engines[0].Flags
	if sources := args[1:]; len(sources) > 0 {
		return compareSources(flags, sources)
	}
	options, err := parseHelp(help)
	if err != nil {
		return nil, fmt.Errorf("reading help from standard input: %w", err)
	}
	if len(options) == 0 {
		return nil, fmt.Errorf("standard input lists no options: pipe the engine's --help into this command")
	}
	return compare(flags, options), nil
}

func compareSources(flags map[string]catalog.Flag, paths []string) ([]string, error) {
	var options []option
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading source: %w", err)
		}
		found := parseSource(string(text))
		if len(found) == 0 {
			return nil, fmt.Errorf("%s registers no options: name files with add_argument calls or FrontendArgs classes", path)
		}
		options = append(options, found...)
	}
	return compare(withoutNegations(flags), distinct(options)), nil
}
