// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package body reads the parts of a request's body that routing depends on: the model, the size of the prompt and of
// the answer, and hashes of the prompt's beginning. It also edits single members and leaves the others unchanged.
//
// It decides which bodies the router refuses. It must not know models, keys or replicas.
package body

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Fields are the values that the router reads from a body.
type Fields struct {
	// Model is the name in the body.
	Model string
	// Stream: the client requests the answer in pieces.
	Stream bool
	// IncludeUsage: the client requests the usage at the end of the stream.
	IncludeUsage bool
	// MaxTokens is the limit of the answer, in tokens; 0 if there is none.
	MaxTokens int
	// CacheSalt is the client's own salt for the prefix cache.
	CacheSalt string
	// Prompt is the JSON text of the prompt: messages, prompt or input.
	Prompt []byte
	// Other is the size of the engine's other input, in bytes: system prompts, tools, documents.
	Other int
	// Sound is the size of an audio file, in bytes.
	Sound int

	model, cacheSalt, streamOptions span
}

// span is the position of a member's value, from its first byte to the byte after its last.
type span struct{ start, end int }

func (s span) isSet() bool { return s.end > 0 }

// ErrNoModel means that a body does not name a model.
var ErrNoModel = errors.New(`the body has no "model": name a model; GET /v1/models lists the models`)

// maxDepth is the deepest accepted nesting of arrays and objects. Engines accept less.
const maxDepth = 512

// JSON reads the fields of a JSON object. It refuses two members with the same name, because the engine may use the one
// that the router does not.
func JSON(text []byte) (Fields, error) {
	if err := valid(text); err != nil {
		return Fields{}, err
	}
	var out Fields
	r := reader{text: text, at: skipSpace(text, 0)}
	if r.at >= len(text) || text[r.at] != '{' {
		return Fields{}, errors.New("the body is not a JSON object: send a JSON object, as OpenAI's API requires")
	}
	var seen [len(names)]bool
	err := r.members(func(key []byte, value span) error {
		i := nameOf(key)
		if i < 0 {
			return nil
		}
		if seen[i] {
			return fmt.Errorf("the body has two members %q: send one", names[i])
		}
		seen[i] = true
		return out.set(names[i], text, value)
	})
	if err == nil && out.Model == "" {
		err = ErrNoModel
	}
	return out, err
}

// names are the members that JSON reads.
var names = [...]string{ //nolint:gochecknoglobals // a constant table
	"model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens", "cache_salt",
	"messages", "prompt", "input", "system", "instructions", "tools", "functions", "documents", "query",
}

// nameOf returns the index of a key in names, or -1. The key may have escapes: "\u006dodel" is also model.
func nameOf(quoted []byte) int {
	key := string(quoted[1 : len(quoted)-1])
	if bytes.IndexByte(quoted, '\\') >= 0 {
		if json.Unmarshal(quoted, &key) != nil {
			return -1
		}
	}
	for i, name := range names {
		if name == key {
			return i
		}
	}
	return -1
}

func (f *Fields) set(name string, text []byte, at span) error {
	value := text[at.start:at.end]
	switch name {
	case "model":
		f.model = at
		return decode(name, "a string", value, &f.Model)
	case "stream":
		return decode(name, "true or false", value, &f.Stream)
	case "stream_options":
		f.streamOptions = at
		// This is a map because encoding/json ignores case when it matches the fields of a struct, and engines do not.
		var options map[string]json.RawMessage
		if err := decode(name, "an object", value, &options); err != nil || options["include_usage"] == nil {
			return err
		}
		return decode("stream_options.include_usage", "true or false", options["include_usage"], &f.IncludeUsage)
	case "cache_salt":
		f.cacheSalt = at
		return decode(name, "a string", value, &f.CacheSalt)
	case "max_tokens", "max_completion_tokens", "max_output_tokens":
		var limit float64
		err := decode(name, "a number", value, &limit)
		if limit > 0 && limit < 1<<31 {
			f.MaxTokens = max(f.MaxTokens, int(limit))
		}
		return err
	}
	if isPrompt(name) && len(value) > len(f.Prompt) {
		f.Other += len(f.Prompt)
		f.Prompt = value
		return nil
	}
	f.Other += len(value)
	return nil
}

// isPrompt reports whether a member is the prompt. Engines keep the beginning of prompts in their prefix cache.
func isPrompt(name string) bool { return name == "messages" || name == "prompt" || name == "input" }

func decode(name, want string, value []byte, into any) error {
	if err := json.Unmarshal(value, into); err != nil {
		return fmt.Errorf("the body's %q is not %s", name, want)
	}
	return nil
}

// valid returns an error if text is not valid JSON, or is nested too deeply.
func valid(text []byte) error {
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case inString:
			inString = c != '"'
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			depth++
			if depth > maxDepth {
				return fmt.Errorf("the body is nested more than %d deep", maxDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	if json.Valid(text) {
		return nil
	}
	var unused json.RawMessage
	return fmt.Errorf("the body is not JSON: %w", json.Unmarshal(text, &unused))
}

// reader iterates over valid JSON.
type reader struct {
	text []byte
	at   int
}

// members calls visit for each member of the object at the reader's position, with the quoted key and the position of
// the value.
func (r *reader) members(visit func(key []byte, value span) error) error {
	r.at = skipSpace(r.text, r.at+1)
	for r.text[r.at] != '}' {
		start := r.at
		r.at = skipString(r.text, r.at)
		key := r.text[start:r.at]
		r.at = skipSpace(r.text, skipSpace(r.text, r.at)+1) // the colon
		start = r.at
		r.at = skipValue(r.text, r.at)
		if err := visit(key, span{start, r.at}); err != nil {
			return err
		}
		if r.at = skipSpace(r.text, r.at); r.text[r.at] == ',' {
			r.at = skipSpace(r.text, r.at+1)
		}
	}
	return nil
}

func skipSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r') {
		at++
	}
	return at
}

// skipString returns the position after the string that begins at a position. It reads each byte once: a search for the
// next quote after each escape would take quadratic time.
func skipString(text []byte, at int) int {
	at++
	for text[at] != '"' {
		if text[at] == '\\' {
			at += 2
			continue
		}
		at++
	}
	return at + 1
}

// skipValue returns the position after the value that begins at a position.
func skipValue(text []byte, at int) int {
	depth := 0
	for {
		switch text[at] {
		case '"':
			at = skipString(text, at)
		case '{', '[':
			depth++
			at++
		case '}', ']':
			depth--
			at++
		case ',', ':', ' ', '\t', '\n', '\r':
			at++
		default:
			for at < len(text) && !isDelimiter(text[at]) {
				at++
			}
		}
		if depth == 0 {
			return at
		}
	}
}

// isDelimiter reports whether a byte ends a number or a literal.
func isDelimiter(c byte) bool {
	switch c {
	case ',', ':', ']', '}', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}
