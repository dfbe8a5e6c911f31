// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package resume

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// chunk has the parts of an event that a continuation depends on.
type chunk struct {
	members map[string]json.RawMessage
	text    string
	finish  string
	usage   *counts
	isDone  bool
	// problem is why the answer cannot be continued after this event; empty if it can.
	problem string
	// isError: the event is an error of the engine and ends the answer. isFault: the engine caused the error, not the
	// request.
	isError, isFault bool
	// isAnswer: the event has a choice, that is, a piece of the answer.
	isAnswer bool
}

type counts struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
}

// read reads an event, including its empty line. ok is false for comments and empty events.
func read(event []byte) (out chunk, ok bool) {
	text := bytes.TrimSpace(event)
	data, isData := bytes.CutPrefix(text, []byte("data:"))
	switch {
	case len(text) == 0 || text[0] == ':':
		return out, false
	case !isData:
		return chunk{problem: "the engine sent an event without data"}, true
	}
	data = bytes.TrimSpace(data)
	if string(data) == "[DONE]" {
		return chunk{isDone: true}, true
	}
	if json.Unmarshal(data, &out.members) != nil || out.members == nil {
		return chunk{problem: "the engine sent an event that is not a JSON object"}, true
	}
	if problem := out.members["error"]; problem != nil && string(problem) != "null" {
		return chunk{isError: true, isFault: isFault(problem), problem: "the engine reported an error"}, true
	}
	out.readAnswer(data)
	if strings.ContainsRune(out.text, '\uFFFD') {
		out.problem = "an event of the answer ends in the middle of a character"
	}
	return out, true
}

// isFault reports whether another engine may succeed, because the error has an HTTP status of 500 or above. See
// create_streaming_error_response in vLLM, which ends the stream normally after the error, and format_error_response in
// llama.cpp.
func isFault(problem json.RawMessage) bool {
	var status struct {
		Code int `json:"code"`
	}
	return json.Unmarshal(problem, &status) == nil && status.Code >= http.StatusInternalServerError
}

func (c *chunk) readAnswer(data []byte) {
	var parts struct {
		Choices []choice `json:"choices"`
		Usage   *counts  `json:"usage"`
	}
	if json.Unmarshal(data, &parts) != nil || len(parts.Choices) > 1 {
		c.problem = "the engine sent an event in an unexpected format"
		return
	}
	c.usage = parts.Usage
	for _, one := range parts.Choices {
		c.isAnswer, c.text, c.finish = true, one.Text, one.Finish
		c.problem = one.readDelta(&c.text)
		if one.Index != 0 {
			c.problem = "the engine sent several answers"
		}
	}
}

// choice is one of the answers to a request.
type choice struct {
	Index  int                        `json:"index"`
	Delta  map[string]json.RawMessage `json:"delta"`
	Text   string                     `json:"text"`
	Finish string                     `json:"finish_reason"`
}

// readDelta reads the text of a chat. It returns a problem if the answer has anything else, such as a tool call.
func (c *choice) readDelta(into *string) (problem string) {
	for _, name := range slices.Sorted(maps.Keys(c.Delta)) {
		value := c.Delta[name]
		switch {
		case name == "content" && string(value) != "null":
			if json.Unmarshal(value, into) != nil {
				return "the engine sent an answer that is not text"
			}
		case name != "role" && !isEmpty(value):
			return "the answer has " + name
		}
	}
	return ""
}

func isEmpty(value json.RawMessage) bool {
	switch string(value) {
	case "null", `""`, "[]", "{}":
		return true
	}
	return false
}

// event returns the members as an encoded event.
func event(members map[string]json.RawMessage) ([]byte, error) {
	text, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	return append(append([]byte("data: "), text...), "\n\n"...), nil
}

// without removes the usage from an event that has a piece of the answer. All other bytes stay as they are.
func without(of []byte, c *chunk) []byte {
	key := []byte(`"usage":`)
	at := bytes.LastIndex(of, key) // no match inside a string, whose quotes are escaped
	if c.usage == nil || at < 0 || !c.isAnswer {
		return of
	}
	decoder := json.NewDecoder(bytes.NewReader(of[at+len(key):]))
	var value json.RawMessage
	if decoder.Decode(&value) != nil {
		return of
	}
	start, end := at, at+len(key)+int(decoder.InputOffset())
	if before := bytes.TrimRight(of[:start], " "); len(before) > 0 && before[len(before)-1] == ',' {
		start = len(before) - 1
	} else if after := bytes.TrimLeft(of[end:], " "); len(after) > 0 && after[0] == ',' {
		end = len(of) - len(after) + 1
	}
	return append(append(make([]byte, 0, len(of)), of[:start]...), of[end:]...)
}
