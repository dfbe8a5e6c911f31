// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/pkg/wording"
)

// mistake explains the mismatch between a decoded JSON value and a Go type; empty if there is none. The JSON decoder
// does not suffice: API types accept stored objects that are no longer valid, and its errors name Go types instead of
// fields.
func mistake(value any, t reflect.Type, path string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil || isOpaque(t) {
		return ""
	}
	switch t.Kind() {
	case reflect.Struct:
		return mistakeInStruct(value, t, path)
	case reflect.Map:
		return mistakeInMap(value, t, path)
	case reflect.Slice:
		return mistakeInList(value, t, path)
	case reflect.String:
		if _, ok := value.(string); !ok {
			return wrong(path, value, "a string: put it in quotes")
		}
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			return wrong(path, value, "true or false")
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		if !isWhole(value, t) {
			return wrong(path, value, "a whole number")
		}
	}
	return ""
}

// isOpaque reports whether a type decodes itself, or is a part of a pod or a volume. Kubernetes checks those parts.
func isOpaque(t reflect.Type) bool {
	ours := strings.HasSuffix(t.PkgPath(), "/api/v1beta1")
	if !ours && reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return true
	}
	return t == reflect.TypeFor[corev1.PodTemplateSpec]() || t == reflect.TypeFor[corev1.VolumeSource]()
}

func mistakeInStruct(value any, t reflect.Type, path string) string {
	object, ok := value.(map[string]any)
	if !ok {
		return wrong(path, value, "a mapping of fields")
	}
	fields := fieldsOf(t)
	for _, key := range slices.Sorted(maps.Keys(object)) {
		field, known := fields[key]
		if !known {
			return noField(join(path, key), key, slices.Sorted(maps.Keys(fields)))
		}
		if problem := mistake(object[key], field, join(path, key)); problem != "" {
			return problem
		}
	}
	return ""
}

func mistakeInMap(value any, t reflect.Type, path string) string {
	object, ok := value.(map[string]any)
	if !ok {
		return wrong(path, value, "a mapping")
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if problem := mistake(object[key], t.Elem(), join(path, key)); problem != "" {
			return problem
		}
	}
	return ""
}

func mistakeInList(value any, t reflect.Type, path string) string {
	list, ok := value.([]any)
	if !ok {
		if _, isText := value.(string); isText && t.Elem().Kind() == reflect.Uint8 {
			return ""
		}
		return wrong(path, value, "a list")
	}
	for i, entry := range list {
		if problem := mistake(entry, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); problem != "" {
			return problem
		}
	}
	return ""
}

// fieldsOf returns the types of a struct's fields by their JSON names.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case field.Anonymous && (name == "" || strings.Contains(options, "inline")):
			maps.Copy(out, fieldsOf(field.Type))
		case name != "":
			out[name] = field.Type
		}
	}
	return out
}

func isWhole(value any, t reflect.Type) bool {
	number, ok := value.(json.Number)
	if !ok {
		return false
	}
	whole, err := number.Int64()
	return err == nil && !reflect.Zero(t).OverflowInt(whole)
}

// wrong returns the message for a value of the wrong type.
func wrong(path string, value any, must string) string {
	shown := fmt.Sprintf("%v", value)
	switch v := value.(type) {
	case string:
		shown = fmt.Sprintf("%q", shorten(v))
	case map[string]any:
		shown = "a mapping"
	case []any:
		shown = "a list"
	}
	return fmt.Sprintf("%s is %s: it must be %s", path, shorten(shown), must)
}

// noField returns the message for an unknown field.
func noField(path, name string, known []string) string {
	for _, other := range known {
		if strings.EqualFold(other, name) {
			return fmt.Sprintf("%s is not a field: did you mean %s?", shorten(path), other)
		}
	}
	return fmt.Sprintf("%s is not a field: use one of %s", shorten(path), strings.Join(known, ", "))
}

// join returns the path of a field within another.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// shorten limits the length of a file's text in a message.
func shorten(text string) string { return wording.Clip(text, 120) }
