// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/wording"
)

// maxValue limits the bytes of one value, because the kernel rejects a longer argument, and every value is stored with
// the revision.
const maxValue = 64 << 10

// Config is a parsed inference_config.yaml: flags by section. A section has the name of an engine. Values at the top
// level belong to no engine, and are in the section "".
type Config map[string]map[string]string

// ParseConfig reads an inference_config.yaml. Values keep the user's spelling, because their meaning depends on the
// flag. Every error is one sentence.
func ParseConfig(data []byte) (Config, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return Config{}, nil
	}
	if err != nil {
		return nil, configError(0, "is not YAML (%s): correct it", wording.OneLine(strings.TrimPrefix(err.Error(), "yaml: ")))
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, configError(0, "holds more than one YAML document: keep one")
	}
	return parseSections(document.Content[0])
}

func parseSections(root *yaml.Node) (Config, error) {
	config := Config{}
	if isNull(root) {
		return config, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, configError(root.Line,
			"is a %s: write sections of flags, such as \"llamacpp:\" with \"name: value\" lines below it", kindOf(root))
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		name, value := root.Content[i], resolve(root.Content[i+1])
		if err := checkKey(name, seen, "the top level"); err != nil {
			return nil, err
		}
		if err := config.add(name.Value, value); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// add adds a section, or a single value of the top level.
func (c Config) add(name string, value *yaml.Node) error {
	if value.Kind == yaml.MappingNode {
		flags, err := parseFlags(name, value)
		if err != nil {
			return err
		}
		c[name] = flags
		return nil
	}
	if value.Kind != yaml.ScalarNode {
		return configError(value.Line, "has a list at %q: write a section of flags", wording.Clip(name, maxName))
	}
	if isNull(value) {
		c[name] = map[string]string{}
		return nil
	}
	if c[""] == nil {
		c[""] = map[string]string{}
	}
	c[""][name] = value.Value
	return nil
}

func parseFlags(section string, node *yaml.Node) (map[string]string, error) {
	where := fmt.Sprintf("section %q", wording.Clip(section, maxName))
	flags, seen := map[string]string{}, map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], resolve(node.Content[i+1])
		if err := checkKey(name, seen, where); err != nil {
			return nil, err
		}
		if value.Kind != yaml.ScalarNode {
			return nil, configError(value.Line, "has a %s at flag %q of %s: write a single value; put JSON in quotes",
				kindOf(value), wording.Clip(name.Value, maxName), where)
		}
		if len(value.Value) > maxValue {
			return nil, configError(value.Line, "has %d bytes at flag %q of %s: at most %d are allowed",
				len(value.Value), wording.Clip(name.Value, maxName), where, maxValue)
		}
		if isNull(value) {
			flags[name.Value] = ""
			continue
		}
		flags[name.Value] = value.Value
	}
	return flags, nil
}

func checkKey(key *yaml.Node, seen map[string]bool, where string) error {
	if key.Kind != yaml.ScalarNode || key.Value == "" {
		return configError(key.Line, "has an invalid key at %s: write \"name: value\"", where)
	}
	if seen[key.Value] {
		return configError(key.Line, "names %q twice at %s: keep one", wording.Clip(key.Value, maxName), where)
	}
	seen[key.Value] = true
	return nil
}

// resolve follows an alias. It follows only one, so nested aliases cannot make the result large.
func resolve(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.Tag == "!!null"
}

func kindOf(node *yaml.Node) string {
	switch node.Kind {
	case yaml.SequenceNode:
		return "list"
	case yaml.MappingNode:
		return "mapping"
	default:
		return "single value"
	}
}

func configError(line int, format string, args ...any) error {
	where := v1beta1.InferenceConfigKey
	if line > 0 {
		where = fmt.Sprintf("%s, line %d,", where, line)
	}
	return errors.New(where + " " + fmt.Sprintf(format, args...))
}

// Flags returns the section of an engine as a source of flags.
func (c Config) Flags(engine string) Source {
	return Source{Name: fmt.Sprintf("section %q of %s", engine, v1beta1.InferenceConfigKey), Flags: c[engine]}
}

// Foreign returns warnings about the parts of the file that belong to other engines.
func (c Config) Foreign(engine string) []string {
	var warnings []string
	for _, section := range slices.Sorted(maps.Keys(c)) {
		names := slices.Sorted(maps.Keys(c[section]))
		switch {
		case section == engine || len(names) == 0:
		case section == "":
			warnings = append(warnings, Sentence("%s: %s ignored, because engine %s has no such setting",
				v1beta1.InferenceConfigKey, are(names), engine))
		default:
			warnings = append(warnings, Sentence(
				"%s: section %q (%s) is ignored, because engine %s serves the model: put flags of that engine into section %q",
				v1beta1.InferenceConfigKey, wording.Clip(section, maxName), list(names), engine, engine))
		}
	}
	return warnings
}
