// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage reads the number of tokens from an answer while the answer passes.
//
// It decides where the usage is in an answer, and drops the usage event if the client did not request it. It must not
// delay a whole event, and must not know models or keys.
package usage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
)

// Tokens are the tokens of a request.
type Tokens struct {
	Prompt, Completion int
}

// Total returns the sum of both.
func (t Tokens) Total() int { return t.Prompt + t.Completion }

const (
	// tail is how many bytes at the end of an answer are searched, if the answer is not a stream.
	tail = 8 << 10
	// maxEvent is the longest unfinished event that is searched, in bytes. A longer one passes unsearched.
	maxEvent = 256 << 10
)

var key = []byte(`"usage":`) //nolint:gochecknoglobals // a constant

// Reader passes an answer on and reads its usage.
type Reader struct {
	from io.ReadCloser
	// isStream: the answer is a stream of events.
	isStream bool
	// strip: drop the event that has only the usage.
	strip bool

	pending []byte // read but not yet passed on
	ready   int    // bytes of pending that may pass
	seen    int    // the following bytes that contain no end of an event
	err     error

	mu       sync.Mutex
	tokens   Tokens
	passed   int64
	isBroken bool
	isWhole  bool
}

// NewReader returns a reader of an answer. With strip, it drops the event that has only the usage.
func NewReader(from io.ReadCloser, isStream, strip bool) *Reader {
	return &Reader{from: from, isStream: isStream, strip: strip}
}

// Tokens returns the tokens read so far; zero if the answer has no usage yet.
func (r *Reader) Tokens() Tokens {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tokens
}

// Passed returns how many bytes of the answer were read from the engine.
func (r *Reader) Passed() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.passed
}

// IsWhole reports whether the whole answer has passed. A client may leave right after that.
func (r *Reader) IsWhole() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isWhole
}

// IsBroken reports whether the engine broke the answer off: its connection broke, or it sent an error in the stream.
func (r *Reader) IsBroken() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isBroken
}

// Close closes the answer.
func (r *Reader) Close() error { return r.from.Close() }

// Read passes the answer on. Without strip, every byte passes at once.
func (r *Reader) Read(p []byte) (int, error) {
	if !r.isStream || !r.strip {
		n, err := r.from.Read(p)
		r.count(n, err)
		r.watch(p[:n])
		return n, err
	}
	for r.ready == 0 && r.err == nil {
		var n int
		n, r.err = r.from.Read(p)
		r.count(n, r.err)
		r.pending = append(r.pending, p[:n]...)
		r.sift()
	}
	if r.ready == 0 {
		return 0, r.err
	}
	n := copy(p, r.pending[:r.ready])
	r.pending = r.pending[:copy(r.pending, r.pending[n:])]
	r.ready -= n
	return n, nil
}

// Take reads the next piece of an answer, and returns the bytes that the caller may forward now. A Reader with a source
// must use Read instead.
func (r *Reader) Take(piece []byte, isLast bool) []byte {
	if isLast {
		r.err = io.EOF
	}
	r.count(len(piece), r.err)
	if !r.isStream || !r.strip {
		r.watch(piece)
		return piece
	}
	r.pending = append(r.pending, piece...)
	r.sift()
	out := bytes.Clone(r.pending[:r.ready])
	r.pending = r.pending[:copy(r.pending, r.pending[r.ready:])]
	r.ready = 0
	return out
}

func (r *Reader) count(n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passed += int64(n)
	r.isWhole = r.isWhole || errors.Is(err, io.EOF)
	isOurs := errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	r.isBroken = r.isBroken || err != nil && !isOurs
}

// watch searches passed bytes for the usage. It keeps the unfinished event of a stream, or the end of another answer.
func (r *Reader) watch(passed []byte) {
	r.pending = append(r.pending, passed...)
	if r.isStream {
		for {
			event := r.firstEvent()
			if event == 0 {
				break
			}
			r.learn(r.pending[:event])
			r.pending = r.pending[:copy(r.pending, r.pending[event:])]
		}
		if len(r.pending) > maxEvent {
			r.pending, r.seen = r.pending[:0], 0
		}
		return
	}
	if extra := len(r.pending) - tail; extra > 0 {
		r.pending = r.pending[:copy(r.pending, r.pending[extra:])]
	}
	r.learn(r.pending)
}

// sift releases whole events, and drops the event that has only the usage.
func (r *Reader) sift() {
	for {
		event := r.firstEvent()
		if event == 0 {
			break
		}
		text := r.pending[r.ready : r.ready+event]
		if r.learn(text) && isUsageAlone(text) {
			r.pending = append(r.pending[:r.ready], r.pending[r.ready+event:]...)
			continue
		}
		r.ready += event
	}
	if r.err != nil || len(r.pending)-r.ready > maxEvent {
		r.ready, r.seen = len(r.pending), 0
	}
}

// firstEvent returns the length of the first whole event after the ready bytes, including its empty line; 0 if there is
// none. It searches no byte twice, except for the beginning of an empty line.
func (r *Reader) firstEvent() int {
	text := r.pending[r.ready:]
	from := max(0, r.seen-len("\r\n\r"))
	if length := endOfEvent(text[from:]); length > 0 {
		r.seen = 0
		return from + length
	}
	r.seen = len(text)
	return 0
}

// endOfEvent returns the position after the first empty line of a text; 0 if there is none.
func endOfEvent(text []byte) int {
	lf, crlf := bytes.Index(text, []byte("\n\n")), bytes.Index(text, []byte("\r\n\r\n"))
	switch {
	case crlf >= 0 && (lf < 0 || crlf < lf):
		return crlf + 4
	case lf >= 0:
		return lf + 2
	}
	return 0
}

// learn stores the usage in a text, and reports whether the text has one.
func (r *Reader) learn(text []byte) bool {
	found, ok := find(text)
	if r.isStream && isFault(text) {
		r.mu.Lock()
		r.isBroken = true
		r.mu.Unlock()
	}
	if !ok {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens.Prompt = max(r.tokens.Prompt, found.Prompt)
	r.tokens.Completion = max(r.tokens.Completion, found.Completion)
	return true
}

// isFault reports whether an event has an error of the engine. vLLM sends one when its engine process dies, after a
// status of 200.
func isFault(event []byte) bool {
	data, ok := bytes.CutPrefix(bytes.TrimSpace(event), []byte(`data:`))
	if data = bytes.TrimSpace(data); !ok || !bytes.HasPrefix(data, []byte(`{"error":`)) {
		return false
	}
	var fault struct {
		Error struct {
			Code int `json:"code"`
		} `json:"error"`
	}
	return json.Unmarshal(data, &fault) == nil && fault.Error.Code >= http.StatusInternalServerError
}

// find returns the last usage in a text. Quotes in a JSON string are escaped, so text from the model cannot look like a
// usage.
func find(text []byte) (Tokens, bool) {
	at := bytes.LastIndex(text, key)
	if at < 0 {
		return Tokens{}, false
	}
	var read struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Input      int `json:"input_tokens"`
		Output     int `json:"output_tokens"`
		Total      int `json:"total_tokens"`
	}
	if err := json.NewDecoder(bytes.NewReader(text[at+len(key):])).Decode(&read); err != nil {
		return Tokens{}, false
	}
	out := Tokens{Prompt: max(0, read.Prompt, read.Input), Completion: max(0, read.Completion, read.Output)}
	if out.Total() == 0 {
		out.Prompt = max(0, read.Total)
	}
	return out, out.Total() > 0
}

// isUsageAlone reports whether an event has a usage and no piece of an answer.
func isUsageAlone(event []byte) bool {
	data, ok := bytes.CutPrefix(bytes.TrimSpace(event), []byte("data:"))
	if !ok {
		return false
	}
	var chunk struct {
		Choices *[]json.RawMessage `json:"choices"`
		Usage   json.RawMessage    `json:"usage"`
	}
	if json.Unmarshal(data, &chunk) != nil || chunk.Choices == nil {
		return false
	}
	return len(*chunk.Choices) == 0 && len(chunk.Usage) > 0
}
