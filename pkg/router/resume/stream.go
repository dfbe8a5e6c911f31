// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package resume

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
)

// LostError ends a stream that cannot be continued.
type LostError struct {
	// Problem is why.
	Problem string
}

func (e *LostError) Error() string {
	return "the replica was lost in mid-answer, and the answer cannot be continued: " + e.Problem
}

const (
	// maxEvent bounds an unfinished event.
	maxEvent = 1 << 20
	// maxText bounds the memory for what the client has got.
	maxText = 256 << 10
)

// Stream passes whole events of an answer on. If the answer breaks off, it continues with that of another replica, once.
type Stream struct {
	plan *Plan
	from io.ReadCloser
	// again asks another replica.
	again func(body []byte) (io.ReadCloser, error)
	// ended gets how a lost stream goes on: nil if it is continued. It returns the event for the client otherwise.
	ended func(problem *LostError) []byte

	buffer  []byte // read, without a whole event
	ready   []byte // for the client
	err     error
	chunk   [4 << 10]byte
	text    strings.Builder // what the client has got
	tokens  int             // at least, of that
	prompt  int
	problem string
	first   map[string]json.RawMessage // the members that all events have in common
	isOver  bool                       // the last event has come

	finish string
	// Of the continuation.
	isResumed bool
	overlap   string
	sent      int // tokens of the first part
}

// NewStream returns the stream of a request with a plan.
func NewStream(
	plan *Plan, from io.ReadCloser, again func(body []byte) (io.ReadCloser, error), ended func(problem *LostError) []byte,
) *Stream {
	return &Stream{plan: plan, from: from, again: again, ended: ended, problem: plan.problem}
}

// Close closes the answer.
func (s *Stream) Close() error { return s.from.Close() }

// Read passes whole events on.
func (s *Stream) Read(p []byte) (int, error) {
	for len(s.ready) == 0 && s.err == nil {
		s.fill()
	}
	if len(s.ready) == 0 {
		return 0, s.err
	}
	n := copy(p, s.ready)
	s.ready = s.ready[n:]
	return n, nil
}

// fill reads a piece of the answer.
func (s *Stream) fill() {
	n, err := s.from.Read(s.chunk[:])
	s.buffer = append(s.buffer, s.chunk[:n]...)
	s.ready = s.ready[:0]
	for s.err == nil {
		length := endOfEvent(s.buffer)
		if length == 0 {
			break
		}
		s.pass(s.buffer[:length])
		s.buffer = s.buffer[:copy(s.buffer, s.buffer[length:])]
	}
	switch {
	case s.err != nil:
	case len(s.buffer) > maxEvent:
		s.fail("an event has no end")
	case err != nil && s.isOver, errors.Is(err, io.EOF) && s.problem != "": // as the engine ended it
		s.ready, s.err = append(s.ready, s.buffer...), io.EOF
	case err != nil:
		s.lost()
	}
}

// endOfEvent is where the first empty line ends; 0 if there is none.
func endOfEvent(text []byte) int {
	lf, crlf := bytes.Index(text, []byte("\n\n")), bytes.Index(text, []byte("\r\n\r\n"))
	switch {
	case crlf >= 0 && (lf < 0 || crlf < lf):
		return crlf + len("\r\n\r\n")
	case lf >= 0:
		return lf + len("\n\n")
	}
	return 0
}

// pass passes an event on, and remembers what the client has got.
func (s *Stream) pass(text []byte) {
	c, ok := read(text)
	if !ok {
		s.ready = append(s.ready, text...)
		return
	}
	if s.isResumed {
		s.merge(&c)
		return
	}
	if c.problem != "" && s.problem == "" {
		s.problem = c.problem
	}
	if s.first == nil && c.isAnswer {
		s.keep(&c)
	}
	s.count(&c)
	if !s.plan.keepsUsage {
		text = without(text, &c)
	}
	s.ready = append(s.ready, text...)
}

// keep remembers what all events have in common.
func (s *Stream) keep(c *chunk) {
	s.first = map[string]json.RawMessage{}
	for _, name := range []string{"id", "object", "created", "model"} {
		s.first[name] = c.members[name]
	}
}

func (s *Stream) count(c *chunk) {
	if s.problem == "" {
		s.text.WriteString(c.text)
	}
	if s.text.Len() > maxText {
		s.problem = "it is too long"
		s.text.Reset()
	}
	if c.text != "" {
		s.tokens++ // an event has one token or more
	}
	if c.usage != nil {
		s.tokens, s.prompt = max(s.tokens, c.usage.Completion), max(s.prompt, c.usage.Prompt)
	}
	if c.finish != "" {
		s.finish = c.finish
	}
	s.isOver = s.isOver || c.isDone
}

// fail ends the stream with an error that the client can read.
func (s *Stream) fail(problem string) {
	s.ready, s.err = append(s.ready, s.ended(&LostError{problem})...), io.EOF
}

// lost continues the answer, or ends it. Half an event is dropped, so the client has not got it.
func (s *Stream) lost() {
	s.buffer = s.buffer[:0]
	if s.problem == "" && s.isResumed {
		s.problem = "it was continued once already"
	}
	if s.problem != "" {
		s.fail(s.problem)
		return
	}
	if err := s.resume(); err != nil {
		s.fail(err.Error())
		return
	}
	s.ended(nil)
}

func (s *Stream) resume() error {
	isFull := s.plan.limit != "" && s.tokens >= s.plan.most
	if s.finish == "" && isFull {
		if err := s.last(); err != nil {
			return err
		}
	}
	if s.finish != "" || isFull {
		return s.close(s.prompt)
	}
	body, overlap, err := s.plan.rest(s.text.String(), s.tokens)
	if err != nil {
		return err
	}
	s.isResumed, s.overlap, s.sent = true, overlap, s.tokens
	_ = s.from.Close() // it broke
	s.from = io.NopCloser(strings.NewReader(""))
	next, err := s.again(body)
	if err != nil {
		return err
	}
	s.from = next
	return nil
}

// last is the last piece of an answer whose text was complete.
func (s *Stream) last() error {
	members := s.common()
	choice := `[{"index":0,"delta":{},"finish_reason":"length"}]`
	if s.plan.kind == Completion {
		choice = `[{"index":0,"text":"","finish_reason":"length"}]`
	}
	members["choices"] = json.RawMessage(choice)
	return s.add(members)
}

// close ends an answer that lacks only its usage.
func (s *Stream) close(prompt int) error {
	if err := s.addUsage(prompt, s.tokens); err != nil {
		return err
	}
	s.ready, s.isOver, s.err = append(s.ready, "data: [DONE]\n\n"...), true, io.EOF
	return nil
}

// common are the members that all events of the answer have.
func (s *Stream) common() map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for name, value := range s.first {
		if value != nil {
			out[name] = value
		}
	}
	return out
}

func (s *Stream) add(members map[string]json.RawMessage) error {
	text, err := event(members)
	s.ready = append(s.ready, text...)
	return err
}

// addUsage adds the event with the usage of the whole answer. The router asks for it, and drops it for clients that did
// not.
func (s *Stream) addUsage(prompt, completion int) error {
	members := s.common()
	members["choices"] = json.RawMessage("[]")
	members["usage"] = s.usage(prompt, completion)
	return s.add(members)
}

// usage marks the answer as continued, and gives the first token of the continuation.
func (s *Stream) usage(prompt, completion int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"resumed_at_token":%d}`,
		prompt, completion, prompt+completion, s.tokensAtCut()))
}

func (s *Stream) tokensAtCut() int {
	if s.isResumed {
		return s.sent
	}
	return s.tokens
}

// merge passes an event of the continuation on, as one of the first answer.
func (s *Stream) merge(c *chunk) {
	if c.problem != "" {
		s.fail(c.problem)
		return
	}
	if c.isDone {
		s.isOver, s.ready = true, append(s.ready, "data: [DONE]\n\n"...)
		return
	}
	isFirst := s.first == nil
	if isFirst && c.isAnswer {
		s.keep(c)
	}
	members := c.members
	maps.Copy(members, s.common())
	if c.usage != nil {
		prompt := s.prompt
		if prompt == 0 { // the first engine had not reported it
			prompt = max(0, c.usage.Prompt-s.sent)
		}
		members["usage"] = s.usage(prompt, s.sent+c.usage.Completion)
	}
	if c.isAnswer {
		if !s.plan.keepsUsage {
			delete(members, "usage")
		}
		text, isNew, problem := s.fresh(c)
		if problem != "" {
			s.fail(problem)
			return
		}
		if !isNew && !isFirst {
			return
		}
		if c.text != "" {
			if err := s.plan.kind.put(members, text); err != nil {
				s.fail(err.Error())
				return
			}
		}
	}
	if err := s.add(members); err != nil {
		s.fail(err.Error())
	}
}

// fresh is the text of an event without the space that the client has got already, because the chat template dropped
// it. isNew is false for an event with nothing else, such as the role.
func (s *Stream) fresh(c *chunk) (text string, isNew bool, problem string) {
	text = c.text
	switch {
	case strings.HasPrefix(text, s.overlap):
		text, s.overlap = text[len(s.overlap):], ""
	case strings.HasPrefix(s.overlap, text):
		s.overlap, text = s.overlap[len(text):], ""
	}
	if s.overlap != "" && (text != "" || c.finish != "") {
		return "", false, "the other replica does not go on with the same space"
	}
	if c.finish != "" {
		s.finish = c.finish
	}
	return text, text != "" || c.finish != "", ""
}

// put replaces the text of the one answer in an event that has some.
func (k Kind) put(members map[string]json.RawMessage, text string) error {
	var choices []map[string]json.RawMessage
	if err := json.Unmarshal(members["choices"], &choices); err != nil {
		return err
	}
	encoded, err := json.Marshal(text)
	if err != nil {
		return err
	}
	if k == Completion {
		choices[0]["text"] = encoded
	} else {
		delta := map[string]json.RawMessage{}
		if err := json.Unmarshal(choices[0]["delta"], &delta); err != nil {
			return err
		}
		delta["content"] = encoded
		if choices[0]["delta"], err = json.Marshal(delta); err != nil {
			return err
		}
	}
	members["choices"], err = json.Marshal(choices)
	return err
}
