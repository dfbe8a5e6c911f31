// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/wording"
)

// maxDepth limits the depth of a part.
const maxDepth = 16

// part is one member of a flag whose value is a JSON object. The user sets it with a key such as
// compilation-config.cudagraph_mode.
type part struct {
	key, name string
	path      []string
	value     string
}

// findPart finds a flag like find. For a part, it also returns the path in the object.
func (t table) findPart(key string) (spelling, []string, bool) {
	if found, ok := t.find(key); ok {
		return found, nil, true
	}
	head, rest, dotted := strings.Cut(key, ".")
	found, ok := t.find(head)
	if !dotted || !ok || t.data.Flags[found.name].Kind != catalog.FlagJSON {
		return spelling{}, nil, false
	}
	return found, strings.Split(rest, "."), true
}

// assemble inserts parts into their objects and replaces existing values.
func assemble(flags map[string]string, parts []part) error {
	objects, spelled := map[string]map[string]any{}, map[string]string{}
	for _, p := range parts {
		where := p.name + "." + strings.Join(p.path, ".")
		if other, given := spelled[where]; given {
			return fmt.Errorf("%q and %q are the same part: keep one", wording.Clip(other, maxName), wording.Clip(p.key, maxName))
		}
		spelled[where] = p.key
		object, begun := objects[p.name]
		if !begun {
			object = map[string]any{}
			if whole, given := flags[p.name]; given && (decodeJSON(whole, &object) != nil || object == nil) {
				return fmt.Errorf("flag %q is part of %q, whose value is not a JSON object", wording.Clip(p.key, maxName), p.name)
			}
			objects[p.name] = object
		}
		if err := p.assign(object); err != nil {
			return fmt.Errorf("flag %q %w", wording.Clip(p.key, maxName), err)
		}
	}
	for name, object := range objects {
		// Marshal writes members in the order of their names.
		text, err := json.Marshal(object)
		if err != nil {
			return fmt.Errorf("flag %q cannot be assembled: %w", name, err)
		}
		flags[name] = string(text)
	}
	return nil
}

func (p part) assign(object map[string]any) error {
	switch {
	case len(p.path) > maxDepth:
		return fmt.Errorf("is deeper than %d levels", maxDepth)
	case len(p.value) > maxValue:
		return fmt.Errorf("has a value of %d bytes: at most %d are allowed", len(p.value), maxValue)
	case slices.ContainsFunc(p.path, func(name string) bool { return name == "" || strings.HasSuffix(name, "+") }):
		return errors.New("does not name a member of an object: write the whole value as JSON")
	case strings.ContainsRune(p.value, 0):
		return errors.New("has a zero byte in its value: remove it")
	}
	last := len(p.path) - 1
	for _, name := range p.path[:last] {
		inner, isObject := object[name].(map[string]any)
		if object[name] == nil {
			inner, isObject = map[string]any{}, true
			object[name] = inner
		}
		if !isObject {
			return fmt.Errorf("is part of %q, whose value is not a JSON object", name)
		}
		object = inner
	}
	if _, given := object[p.path[last]].(map[string]any); given {
		return errors.New("is set both as a whole and in parts: keep one")
	}
	object[p.path[last]] = p.decoded()
	return nil
}

// decoded returns the value as JSON, or as a string if it is not JSON. YAML's spellings of true and false count as
// JSON's.
func (p part) decoded() any {
	switch p.value {
	case "True", "TRUE":
		return true
	case "False", "FALSE":
		return false
	}
	var value any
	if decodeJSON(p.value, &value) != nil {
		return p.value
	}
	return value
}

// decodeJSON decodes one JSON value and keeps numbers as they are written.
func decodeJSON(text string, into any) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}
