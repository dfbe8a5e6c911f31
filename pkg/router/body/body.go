// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package body reads what routing depends on from the body of a request: the model, the size of the prompt and of the
// answer, and hashes of the prompt's beginning. It also edits single members without touching the others.
//
// It decides which bodies are refused. It must not know models, keys or replicas.
package body

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Fields are what the router reads of a body.
type Fields struct {
	// Model is the name in the body.
	Model string
	// Stream: the client wants the answer in pieces.
	Stream bool
	// IncludeUsage: the client wants the usage at the end of the stream.
	IncludeUsage bool
	// MaxTokens is the limit of the answer; 0 if there is none.
	MaxTokens int
	// CacheSalt is the client's own salt of the prefix cache.
	CacheSalt string
	// Prompt is the JSON text of the prompt: messages, prompt or input.
	Prompt []byte
	// Other is the size of what else the engine reads before it answers, in bytes: system prompts, tools, documents.
	Other int
	// Sound is the size of a recording, in bytes.
	Sound int

	model, cacheSalt, streamOptions span
}

// span is the place of a member's value, from its first byte to after its last.
type span struct{ start, end int }

func (s span) isSet() bool { return s.end > 0 }

// ErrNoModel reports a body without the name of a model.
var ErrNoModel = errors.New(`the body has no "model": name one, GET /v1/models lists them`)

// maxDepth bounds the nesting of arrays and objects. Engines have smaller limits.
const maxDepth = 512

// JSON reads the fields of a JSON object. Two members of one name are refused, because the engine may read the other
// one.
func JSON(text []byte) (Fields, error) {
	if err := valid(text); err != nil {
		return Fields{}, err
	}
	var out Fields
	r := reader{text: text, at: skipSpace(text, 0)}
	if r.at >= len(text) || text[r.at] != '{' {
		return Fields{}, errors.New("the body is not a JSON object: send one, as OpenAI's API does")
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

// names of the members that are read.
var names = [...]string{ //nolint:gochecknoglobals // a constant table
	"model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens", "cache_salt",
	"messages", "prompt", "input", "system", "instructions", "tools", "functions", "documents", "query",
}

// nameOf returns the index of a key in names, or -1. Keys may be escaped: "\u006dodel" is model, too.
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
		// A map, because engines do not match names without regard to case, as the fields of a struct do.
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

// isPrompt reports whether a member begins the text that engines keep in their prefix cache.
func isPrompt(name string) bool { return name == "messages" || name == "prompt" || name == "input" }

func decode(name, want string, value []byte, into any) error {
	if err := json.Unmarshal(value, into); err != nil {
		return fmt.Errorf("the body's %q is not %s", name, want)
	}
	return nil
}

// valid checks the text as encoding/json does, and its depth.
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

// reader walks over valid JSON.
type reader struct {
	text []byte
	at   int
}

// members calls visit with the quoted key and the place of the value of each member of the object at the reader.
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

// skipString returns the place after the string at a place. It reads each byte once: a search for the next quote from
// each escape would be quadratic.
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

// skipValue returns the place after the value at a place.
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
