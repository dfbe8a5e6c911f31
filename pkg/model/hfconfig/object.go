// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hfconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// MaxConfig limits the bytes of config.json and its small neighbours. The largest published ones have some 100 KiB.
const MaxConfig = 1 << 20

// object is a JSON object whose values are decoded on demand.
type object map[string]json.RawMessage

// decodeObject reads a file with one JSON object. Like Python, it accepts NaN and Infinity as values, and takes the
// last of two equal keys.
func decodeObject(file string, data []byte) (object, error) {
	if len(data) > MaxConfig {
		return nil, &FieldError{File: file, Must: fmt.Sprintf("has %d bytes; at most %d are read", len(data), MaxConfig)}
	}
	var out object
	err := json.Unmarshal(quoteNonNumbers(data), &out)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return nil, &FieldError{File: file, Must: fmt.Sprintf("is not JSON: %v, after %d bytes", syntax, syntax.Offset)}
	}
	if err != nil || out == nil {
		return nil, &FieldError{File: file, Must: "is not a JSON object"}
	}
	return out, nil
}

// quoteNonNumbers puts NaN and Infinity, which JSON does not have, into quotes. If a number is required there, the
// error then names the field.
func quoteNonNumbers(data []byte) []byte {
	if !bytes.Contains(data, []byte("NaN")) && !bytes.Contains(data, []byte("Infinity")) {
		return data
	}
	var out []byte
	inString := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			inString = !inString
		case inString && c == '\\' && i+1 < len(data):
			out = append(out, c)
			i++
		case !inString:
			if word := nonNumber(data[i:]); word != "" {
				out = append(append(append(out, '"'), word...), '"')
				i += len(word) - 1
				continue
			}
		}
		out = append(out, data[i])
	}
	return out
}

func nonNumber(data []byte) string {
	for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
		if bytes.HasPrefix(data, []byte(word)) {
			return word
		}
	}
	return ""
}

// sub returns a nested object; nil if there is none.
func (o object) sub(key string) object {
	var out object
	if json.Unmarshal(o[key], &out) != nil {
		return nil
	}
	return out
}

// text returns a string; empty if there is none.
func (o object) text(key string) string {
	var out string
	if json.Unmarshal(o[key], &out) != nil {
		return ""
	}
	return out
}

func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || string(raw) == "null"
}

// found is a value and the name of its field.
type found struct {
	field string
	raw   json.RawMessage
}

// level is an object and the prefix for the names of its keys.
type level struct {
	prefix string
	object object
}

// reader finds values in a config. It looks first in the language model's own part, then in the outer part, then in the
// defaults of its class. It keeps the first error and then returns zero values.
type reader struct {
	file     string
	levels   []level
	defaults object
	err      error
}

// find returns the value of the first key that has one. An explicit null hides the default of the class.
func (r *reader) find(keys ...string) (found, bool) {
	null := map[string]bool{}
	for _, key := range keys {
		for _, l := range r.levels {
			raw, ok := l.object[key]
			if ok && !isNull(raw) {
				return found{l.prefix + key, raw}, true
			}
			null[key] = null[key] || ok
		}
	}
	for _, key := range keys {
		if raw := r.defaults[key]; !null[key] && !isNull(raw) {
			return found{key, raw}, true
		}
	}
	return found{}, false
}

func (r *reader) has(keys ...string) bool {
	_, ok := r.find(keys...)
	return ok
}

func (r *reader) fail(f found, must string) {
	if r.err == nil {
		r.err = &FieldError{File: r.file, Field: f.field, Value: shown(string(f.raw)), Must: must}
	}
}

// integer returns a number from least to most; 0 if no key has a value.
func (r *reader) integer(least, most int, keys ...string) int {
	f, ok := r.find(keys...)
	if !ok || r.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(f.raw), 10, 64)
	if err != nil || n < int64(least) || n > int64(most) {
		r.fail(f, fmt.Sprintf("must be a whole number from %d to %d", least, most))
		return 0
	}
	return int(n)
}

// required is integer for a number that must be present.
func (r *reader) required(most int, keys ...string) int {
	if !r.has(keys...) && r.err == nil {
		must := "is missing"
		if len(keys) > 1 {
			must = fmt.Sprintf("is missing, and so are its other names %v", keys[1:])
		}
		r.err = &FieldError{File: r.file, Field: keys[0], Must: must}
	}
	return r.integer(1, most, keys...)
}

// number returns a number above 0 and up to most; 0 if no key has a value.
func (r *reader) number(most float64, keys ...string) float64 {
	f, ok := r.find(keys...)
	if !ok || r.err != nil {
		return 0
	}
	n, err := strconv.ParseFloat(string(f.raw), 64)
	if err != nil || math.IsNaN(n) || n <= 0 || n > most {
		r.fail(f, fmt.Sprintf("must be a number above 0 and at most %v", most))
		return 0
	}
	return n
}

// boolean returns true or false; false if no key has a value.
func (r *reader) boolean(keys ...string) bool {
	var out bool
	r.decode(&out, "must be true or false", keys...)
	return out
}

// text returns a string; "" if no key has a value.
func (r *reader) text(keys ...string) string {
	var out string
	r.decode(&out, "must be a string", keys...)
	return out
}

// texts and integers return lists; nil if no key has a value.
func (r *reader) texts(keys ...string) []string {
	var out []string
	r.decode(&out, "must be a list of strings", keys...)
	return out
}

func (r *reader) integers(keys ...string) []int {
	var out []int
	r.decode(&out, "must be a list of whole numbers", keys...)
	return out
}

// decode sets into if a key has a value.
func (r *reader) decode(into any, must string, keys ...string) {
	f, ok := r.find(keys...)
	if !ok || r.err != nil {
		return
	}
	if json.Unmarshal(f.raw, into) != nil {
		r.fail(f, must)
	}
}

// flag resolves a switch of the table, which is "always" or the name of a key.
func (r *reader) flag(name string) bool {
	switch name {
	case "":
		return false
	case "always":
		return true
	}
	return r.boolean(name)
}
