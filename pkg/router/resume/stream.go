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

// LostError is the error of a stream that cannot be continued.
type LostError struct {
	// Problem is the reason.
	Problem string
}

func (e *LostError) Error() string {
	return "the replica was lost in mid-answer, and the answer cannot be continued: " + e.Problem
}

const (
	// maxEvent is the longest unfinished event, in bytes.
	maxEvent = 1 << 20
	// maxText is the longest text of one stream that can be continued, in bytes.
	maxText = 256 << 10
)

// Stream passes on whole events of an answer. If the answer breaks off, Stream continues it with the answer of another
// replica, once.
type Stream struct {
	plan   *Plan
	memory *Memory
	from   io.ReadCloser
	// again sends the body to another replica.
	again func(body []byte) (io.ReadCloser, error)
	// ended reports how a lost stream goes on. nil means that another replica continues it. Otherwise, ended returns the
	// last event for the client.
	ended func(problem *LostError) []byte

	buffer  []byte // has no whole event
	ready   []byte // for the client
	err     error
	chunk   [4 << 10]byte
	text    strings.Builder // the client has received it
	held    int             // bytes of memory for text
	tokens  int             // the client has at least this many
	prompt  int
	problem string
	first   map[string]json.RawMessage // the members that all events have in common
	isOver  bool                       // the last event has come

	finish   string
	hasUsage bool   // the event with the usage has come
	report   []byte // the engine's error that ended the answer
	// The fields below describe the continuation.
	isResumed bool
	overlap   string
	sent      int // tokens of the first part
}

// NewStream returns the stream for a request with a plan.
func NewStream(
	plan *Plan, memory *Memory, from io.ReadCloser,
	again func(body []byte) (io.ReadCloser, error), ended func(problem *LostError) []byte,
) *Stream {
	return &Stream{plan: plan, memory: memory, from: from, again: again, ended: ended, problem: plan.problem}
}

// Close closes the answer and frees its text.
func (s *Stream) Close() error {
	s.forget()
	return s.from.Close()
}

// Read returns bytes of whole events.
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

// fill reads a piece of the answer and passes on its whole events.
func (s *Stream) fill() {
	n, err := s.from.Read(s.chunk[:])
	s.buffer = append(s.buffer, s.chunk[:n]...)
	s.ready = s.ready[:0]
	isLost := false
	for s.err == nil && !isLost {
		length := endOfEvent(s.buffer)
		if length == 0 {
			break
		}
		isLost = s.pass(s.buffer[:length])
		s.buffer = s.buffer[:copy(s.buffer, s.buffer[length:])]
	}
	switch {
	case s.err != nil:
	case isLost: // the bytes after the error are of no use
		s.lost()
	case len(s.buffer) > maxEvent:
		s.fail("the engine sent an event without an end")
	case err != nil && s.isOver, errors.Is(err, io.EOF) && s.problem != "": // the stream ends as at the engine
		s.ready, s.err = append(s.ready, s.buffer...), io.EOF
	case err != nil:
		s.lost()
	}
}

// endOfEvent returns the position after the first empty line; 0 if there is none.
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

// pass forwards an event and records it as received by the client. isLost means that the engine sent an error instead
// of the rest.
func (s *Stream) pass(text []byte) (isLost bool) {
	c, ok := read(text)
	if c.isError && (s.isWhole() || c.isFault && s.problem == "" && !s.isResumed) {
		s.report = bytes.Clone(text)
		return true
	}
	if s.isResumed && ok && !c.isError {
		if err := s.merge(&c); err != nil {
			s.fail(err.Error())
		}
		return false
	}
	if s.problem == "" {
		s.problem = c.problem
	}
	s.count(&c)
	if !s.plan.keepsUsage {
		text = without(text, &c)
	}
	s.ready = append(s.ready, text...)
	return false
}

// keep stores the members that all events have in common.
func (s *Stream) keep(c *chunk) {
	if s.first != nil || !c.isAnswer {
		return
	}
	s.first = map[string]json.RawMessage{}
	for _, name := range []string{"id", "object", "created", "model"} {
		s.first[name] = c.members[name]
	}
}

// count records what the client has received. It subtracts the tokens of the first part from the prompt of a
// continuation, because that prompt contains the first part.
func (s *Stream) count(c *chunk) {
	s.keep(c)
	if s.problem == "" && !s.isResumed {
		s.problem = s.remember(c.text)
	}
	if s.problem != "" {
		s.forget()
	}
	if c.text != "" {
		s.tokens++ // an event with text has at least one token
	}
	if c.usage != nil {
		s.tokens = max(s.tokens, s.sent+c.usage.Completion)
		if s.prompt == 0 {
			s.prompt = max(0, c.usage.Prompt-s.sent)
		}
		s.hasUsage = !c.isAnswer
	}
	if c.finish != "" {
		s.finish = c.finish
	}
	s.isOver = s.isOver || c.isDone || c.isError
}

// fail ends the stream with an error event for the client. If the engine sent one, that is the event.
func (s *Stream) fail(problem string) {
	last := s.ended(&LostError{problem})
	if s.report != nil {
		last = s.report
	}
	s.ready, s.err = append(s.ready, last...), io.EOF
}

// isWhole reports whether the client has the whole text and the finish reason. It is false for a request that cannot be
// continued, because there may be several answers.
func (s *Stream) isWhole() bool { return s.finish != "" && s.plan.problem == "" }

// lost continues the answer, or ends it. It drops an unfinished event, of which the client has received nothing.
func (s *Stream) lost() {
	s.buffer = s.buffer[:0]
	isFull := s.problem == "" && s.plan.limit != "" && s.tokens >= s.plan.most
	if s.isWhole() || isFull {
		if err := s.close(); err != nil {
			s.fail(err.Error())
		}
		return
	}
	if s.problem == "" && s.isResumed {
		s.problem = "another replica continued the answer once already"
	}
	if s.problem != "" {
		s.fail(s.problem)
		return
	}
	if err := s.resume(); err != nil {
		s.fail(err.Error())
		return
	}
	s.report = nil
	s.ended(nil)
}

func (s *Stream) resume() error {
	body, overlap, err := s.plan.rest(s.text.String(), s.tokens)
	if err != nil {
		return err
	}
	s.isResumed, s.overlap, s.sent = true, overlap, s.tokens
	s.forget()
	_ = s.from.Close() // the connection broke
	s.from = io.NopCloser(strings.NewReader(""))
	next, err := s.again(body)
	if err != nil {
		return err
	}
	s.from = next
	return nil
}

// last adds the final event of an answer that has reached its limit of tokens.
func (s *Stream) last() error {
	members := s.common()
	choice := `[{"index":0,"delta":{},"finish_reason":"length"}]`
	if s.plan.kind == Completion {
		choice = `[{"index":0,"text":"","finish_reason":"length"}]`
	}
	members["choices"] = json.RawMessage(choice)
	return s.add(members)
}

// close adds the missing events at the end of an answer whose text is complete.
func (s *Stream) close() error {
	if s.finish == "" {
		if err := s.last(); err != nil {
			return err
		}
	}
	if !s.hasUsage {
		if err := s.addUsage(); err != nil {
			return err
		}
	}
	s.ready, s.isOver, s.err = append(s.ready, "data: [DONE]\n\n"...), true, io.EOF
	return nil
}

// common returns the members that all events of the answer have in common.
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

// addUsage adds an event with the usage of the whole answer. The router always requests this event, and drops it if the
// client did not request it.
func (s *Stream) addUsage() error {
	members := s.common()
	members["choices"], members["usage"] = json.RawMessage("[]"), s.usage()
	return s.add(members)
}

// usage returns the usage of the whole answer. resumed_at_token marks the answer as continued: it is the number of
// tokens in the first part.
func (s *Stream) usage() json.RawMessage {
	cut := s.tokens
	if s.isResumed {
		cut = s.sent
	}
	return json.RawMessage(fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"resumed_at_token":%d}`,
		s.prompt, s.tokens, s.prompt+s.tokens, cut))
}

// merge passes on an event of the continuation as if it were an event of the first answer.
func (s *Stream) merge(c *chunk) error {
	if c.problem != "" {
		return errors.New(c.problem)
	}
	isFirst := s.first == nil
	s.count(c)
	if c.isDone {
		s.ready = append(s.ready, "data: [DONE]\n\n"...)
		return nil
	}
	members := c.members
	maps.Copy(members, s.common())
	if c.usage != nil {
		members["usage"] = s.usage()
	}
	if !c.isAnswer {
		return s.add(members)
	}
	if !s.plan.keepsUsage {
		delete(members, "usage")
	}
	text, err := s.fresh(c)
	if err != nil {
		return err
	}
	if text == "" && c.finish == "" && !isFirst { // for example an event with only the role
		return nil
	}
	if c.text != "" {
		if err := s.plan.kind.put(members, text); err != nil {
			return err
		}
	}
	return s.add(members)
}

// fresh returns the text of an event without the white space that the client already has. The engine generates it again
// if the chat template dropped it.
func (s *Stream) fresh(c *chunk) (text string, err error) {
	text = c.text
	switch {
	case strings.HasPrefix(text, s.overlap):
		text, s.overlap = text[len(s.overlap):], ""
	case strings.HasPrefix(s.overlap, text):
		s.overlap, text = s.overlap[len(text):], ""
	}
	if s.overlap != "" && (text != "" || c.finish != "") {
		return "", errors.New("the other replica did not repeat the white space at the end of the text already sent")
	}
	return text, nil
}

// put replaces the text in an event that has a choice.
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
