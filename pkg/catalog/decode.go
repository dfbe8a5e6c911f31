// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/sku"
	"github.com/modelberth/modelberth/pkg/wording"
)

// maxFileBytes is more than a ConfigMap can hold; a larger file is a mistake.
const maxFileBytes = 1 << 20

// document is one file of facts. Any of the lists may be absent.
type document struct {
	// Source and Date of the facts.
	Source string `json:"source,omitempty"`
	Date   string `json:"date,omitempty"`
	// Cloud is the default for SKUs without a cloud. Region is the cloud's reference region for prices.
	Cloud    string `json:"cloud,omitempty"`
	Region   string `json:"region,omitempty"`
	Currency string `json:"currency,omitempty"`

	GPUs    []sku.GPU     `json:"-"`
	SKUs    []sku.SKU     `json:"-"`
	Models  []model.Model `json:"-"`
	Engines []Engine      `json:"-"`

	Quantizations []model.Quantization `json:"-"`
	Overrides     []Override           `json:"-"`

	EngineOverrides []EngineOverride `json:"-"`
	Objectives      []Objective      `json:"-"`
	Measurements    []Measurement    `json:"-"`
}

// rawDocument leaves the entries undecoded, so that an error can name the entry.
type rawDocument struct {
	document
	GPUs    []json.RawMessage `json:"gpus,omitempty"`
	SKUs    []json.RawMessage `json:"skus,omitempty"`
	Models  []json.RawMessage `json:"models,omitempty"`
	Engines []json.RawMessage `json:"engines,omitempty"`

	Quantizations []json.RawMessage `json:"quantizations,omitempty"`
	Overrides     []json.RawMessage `json:"overrides,omitempty"`

	EngineOverrides []json.RawMessage `json:"engineOverrides,omitempty"`
	Objectives      []json.RawMessage `json:"objectives,omitempty"`
	Measurements    []json.RawMessage `json:"measurements,omitempty"`
}

// decode reads one file strictly: unknown fields, duplicate keys and wrong types are errors.
func decode(data []byte) (document, error) {
	if len(data) > maxFileBytes {
		return document{}, fmt.Errorf("it has %d bytes: at most %d are allowed", len(data), maxFileBytes)
	}
	if hasSecondDocument(data) {
		return document{}, errors.New("it holds more than one YAML document: join them into one")
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return document{}, decodeError(err)
	}
	var raw rawDocument
	if err := unmarshalStrict(asJSON, &raw); err != nil {
		return document{}, err
	}
	doc := raw.document
	if doc.GPUs, err = decodeList[sku.GPU]("gpus", raw.GPUs); err != nil {
		return document{}, err
	}
	if doc.SKUs, err = decodeList[sku.SKU]("skus", raw.SKUs); err != nil {
		return document{}, err
	}
	if doc.Overrides, err = decodeList[Override]("overrides", raw.Overrides); err != nil {
		return document{}, err
	}
	if doc.Models, err = decodeList[model.Model]("models", raw.Models); err != nil {
		return document{}, err
	}
	if doc.Quantizations, err = decodeList[model.Quantization]("quantizations", raw.Quantizations); err != nil {
		return document{}, err
	}
	if doc.EngineOverrides, err = decodeList[EngineOverride]("engineOverrides", raw.EngineOverrides); err != nil {
		return document{}, err
	}
	if doc.Objectives, err = decodeList[Objective]("objectives", raw.Objectives); err != nil {
		return document{}, err
	}
	if doc.Measurements, err = decodeList[Measurement]("measurements", raw.Measurements); err != nil {
		return document{}, err
	}
	doc.Engines, err = decodeList[Engine]("engines", raw.Engines)
	return doc, err
}

// decodeList decodes the entries of one list; an error names the entry.
func decodeList[T any](list string, raw []json.RawMessage) ([]T, error) {
	entries := make([]T, len(raw))
	for i, entry := range raw {
		err := refuseEmpty(entry)
		if err == nil {
			err = unmarshalStrict(entry, &entries[i])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", entryName(list, i, nameOf(entry)), err)
		}
	}
	return entries, nil
}

// unmarshalStrict decodes JSON, refuses unknown fields, and phrases errors for the author of the file.
func unmarshalStrict(data []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(data, into)
	if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: %s instead of %s",
			orWhole(wrongType.Field), plainValue(wrongType.Value, tokenBefore(data, wrongType.Offset)), plainType(wrongType.Type.String()))
	}
	if err != nil {
		return decodeError(err)
	}
	if len(strict) > 0 {
		return decodeError(strict[0])
	}
	return nil
}

// plainValue describes a JSON value of the wrong type for people.
func plainValue(kind, token string) string {
	switch kind {
	case "object":
		return "found a map"
	case "array":
		return "found a list"
	case "string":
		return "found the text " + token
	case "bool":
		return "found " + token
	default:
		return "found the number " + token
	}
}

// plainType describes a Go type for people.
func plainType(goType string) string {
	switch {
	case strings.HasPrefix(goType, "int"):
		return "a whole number"
	case strings.HasPrefix(goType, "float"):
		return "a number"
	case goType == "bool":
		return "true or false"
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case strings.HasPrefix(goType, "map"), strings.Contains(goType, "."):
		if strings.HasSuffix(goType, "Kind") || strings.HasSuffix(goType, "Basis") || strings.HasSuffix(goType, "Split") ||
			strings.HasSuffix(goType, "Scope") {
			return "text in quotes"
		}
		return "a map"
	default:
		return "text in quotes"
	}
}

// orWhole returns a field's path, or "the value" for an empty path.
func orWhole(field string) string {
	if field == "" {
		return "the value"
	}
	return field
}

// tokenBefore returns the JSON value before an offset, shortened.
func tokenBefore(data []byte, offset int64) string {
	const longest = 40
	end := min(max(int(offset), 0), len(data))
	start := bytes.LastIndexAny(data[:max(end-1, 0)], ":,[{") + 1
	return wording.Clip(strings.TrimSpace(string(data[start:end])), longest)
}

// nameOf returns the name of an entry, even if the entry does not decode.
func nameOf(entry json.RawMessage) string {
	var named struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(entry, &named); err != nil {
		return ""
	}
	return named.Name
}

// entryName names an entry of a list for people.
func entryName(list string, index int, name string) string {
	if name == "" {
		return fmt.Sprintf("%s[%d]", list, index)
	}
	return fmt.Sprintf("%s[%d] %q", list, index, name)
}

// hasSecondDocument reports whether a second YAML document follows. The decoder would ignore it.
func hasSecondDocument(data []byte) bool {
	content := false // content or a marker was found
	for line := range bytes.Lines(data) {
		trimmed := bytes.TrimSpace(line)
		marker := bytes.HasPrefix(line, []byte("---")) || bytes.HasPrefix(line, []byte("..."))
		if marker && content {
			return true
		}
		if marker || len(trimmed) > 0 && trimmed[0] != '#' {
			content = true
		}
	}
	return false
}

// decodeError joins the lines of an error and drops the decoders' prefixes.
func decodeError(err error) error {
	text := wording.OneLine(err.Error())
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors: ", "json: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return errors.New(text)
}
