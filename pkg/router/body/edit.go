// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package body

import (
	"encoding/json"
	"errors"
	"slices"
)

// Edit has the changes of a JSON body for the engine.
type Edit struct {
	// Model replaces the name of the model, if it is not empty.
	Model string
	// CacheSalt replaces or adds the salt, if it is not empty.
	CacheSalt string
	// IncludeUsage requests the usage at the end of the stream.
	IncludeUsage bool
}

// splice replaces a span of a body by a text.
type splice struct {
	at   span
	text []byte
}

// Apply returns the body with the changes. All other bytes stay the same. The text must be the body that the fields
// come from.
func (f *Fields) Apply(text []byte, edit Edit) ([]byte, error) {
	var splices []splice
	var added []byte
	put := func(name string, at span, value any) error {
		encoded, err := json.Marshal(value)
		switch {
		case err != nil:
			return err
		case at.isSet():
			splices = append(splices, splice{at, encoded})
		default:
			added = append(append(append(added, `"`+name+`":`...), encoded...), ',')
		}
		return nil
	}
	var errs []error
	if edit.Model != "" {
		errs = append(errs, put("model", f.model, edit.Model))
	}
	if edit.CacheSalt != "" {
		errs = append(errs, put("cache_salt", f.cacheSalt, edit.CacheSalt))
	}
	if edit.IncludeUsage {
		options, err := withUsage(text, f.streamOptions)
		errs = append(errs, err, put("stream_options", f.streamOptions, options))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if added != nil { // at the start of the object: the model follows, so the last comma is valid
		start := skipSpace(text, 0) + 1
		splices = append(splices, splice{span{start, start}, added})
	}
	return spliced(text, splices), nil
}

// withUsage returns the client's stream options with include_usage set.
func withUsage(text []byte, at span) (map[string]json.RawMessage, error) {
	var out map[string]json.RawMessage
	if at.isSet() {
		if err := json.Unmarshal(text[at.start:at.end], &out); err != nil {
			return nil, err
		}
	}
	if out == nil {
		out = map[string]json.RawMessage{}
	}
	out["include_usage"] = json.RawMessage("true")
	return out, nil
}

func spliced(text []byte, splices []splice) []byte {
	if len(splices) == 0 {
		return text
	}
	slices.SortFunc(splices, func(a, b splice) int { return a.at.start - b.at.start })
	size, last := len(text), 0
	for _, s := range splices {
		size += len(s.text) - (s.at.end - s.at.start)
	}
	out := make([]byte, 0, size)
	for _, s := range splices {
		out = append(append(out, text[last:s.at.start]...), s.text...)
		last = s.at.end
	}
	return append(out, text[last:]...)
}
