// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// message is one of a chat; its content is text, or a list of parts; only their texts count.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

func (m message) text() string {
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(m.Content, &parts)
	for _, part := range parts {
		text += part.Text
	}
	return text
}

func render(messages []message) string {
	var b strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&b, "%s: %s\n", m.Role, m.text())
	}
	return b.String() + "assistant:"
}

// sampling holds the common fields of both kinds of requests. The server accepts and ignores all others.
type sampling struct {
	Model         string `json:"model"`
	MaxTokens     *int   `json:"max_tokens"`
	MinTokens     int    `json:"min_tokens"`
	IgnoreEnd     bool   `json:"ignore_eos"`
	Stream        bool   `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Total      int `json:"total_tokens"`
	Completion int `json:"completion_tokens"`
}

// form is how one kind of answer is written.
type form struct {
	id, model, object string
	// choice of a whole answer, delta of a piece of a stream; first is a stream's first delta.
	choice, delta func(text string, reason *string) any
	first         any
}

// defaultTokens of /v1/completions.
const defaultTokens = 16

func (s *Server) serveCompletions(w http.ResponseWriter, r *http.Request) {
	var body struct {
		sampling
		Prompt any `json:"prompt"`
	}
	if !decode(w, r, &body) {
		return
	}
	prompt, ok := body.Prompt.(string)
	if list, isList := body.Prompt.([]any); isList && len(list) == 1 {
		prompt, ok = list[0].(string)
	}
	if !ok {
		refuse(w, badRequest("prompt", "vllmsim: the prompt must be one text"))
		return
	}
	if body.MaxTokens == nil {
		tokens := defaultTokens
		body.MaxTokens = &tokens
	}
	choice := func(text string, reason *string) any {
		return map[string]any{"index": 0, "text": text, "logprobs": nil, "finish_reason": reason, "stop_reason": nil}
	}
	s.complete(w, r, body.sampling, prompt, form{
		id: s.newID("cmpl-"), object: "text_completion", choice: choice, delta: choice,
	})
}

func (s *Server) serveChat(w http.ResponseWriter, r *http.Request) {
	var body struct {
		sampling
		MaxCompletion *int            `json:"max_completion_tokens"`
		Messages      []message       `json:"messages"`
		Tools         json.RawMessage `json:"tools"`
		ToolChoice    any             `json:"tool_choice"`
	}
	if !decode(w, r, &body) {
		return
	}
	if len(body.Messages) == 0 {
		refuse(w, badRequest("messages", "1 validation error:\n  {'type': 'missing', 'loc': ('body', 'messages'), 'msg': 'Field required'}"))
		return
	}
	if len(body.Tools) > 2 && (body.ToolChoice == nil || body.ToolChoice == "auto") && !s.options.AutoTools {
		refuse(w, badRequest("", `"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set`))
		return
	}
	if body.MaxCompletion != nil {
		body.MaxTokens = body.MaxCompletion
	}
	s.complete(w, r, body.sampling, render(body.Messages), form{
		id: s.newID("chatcmpl-"), object: "chat.completion",
		choice: func(text string, reason *string) any {
			return map[string]any{
				"index": 0, "message": map[string]any{"role": "assistant", "content": text, "tool_calls": []any{}},
				"logprobs": nil, "finish_reason": reason, "stop_reason": nil,
			}
		},
		delta: func(text string, reason *string) any {
			return map[string]any{"index": 0, "delta": map[string]any{"content": text}, "logprobs": nil, "finish_reason": reason}
		},
		first: map[string]any{
			"index": 0, "delta": map[string]any{"role": "assistant", "content": ""}, "logprobs": nil, "finish_reason": nil,
		},
	})
}

func (s *Server) newID(prefix string) string {
	return fmt.Sprintf("%s%032x", prefix, s.requests.Add(1))
}

// complete checks lengths and answers, at once or as a stream.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, p sampling, prompt string, f form) {
	adapter, e := s.findModel(p.Model)
	if e != nil {
		refuse(w, e)
		return
	}
	f.model = p.Model
	if f.model == "" {
		f.model = s.options.Names[0]
	}
	req := request{
		seed: adapter + "\x00" + prompt, promptTokens: len(s.tokens.pieces(prompt)), minTokens: p.MinTokens, ignoreEnd: p.IgnoreEnd,
	}
	if req.maxTokens, e = s.limit(p.MaxTokens, req.promptTokens); e != nil {
		refuse(w, e)
		return
	}
	if p.Stream {
		s.stream(w, r, req, f, p.StreamOptions.IncludeUsage || s.options.ForceUsage)
		return
	}
	var text strings.Builder
	tokens, reason, err := s.engine.run(r.Context(), req, func(piece string) error {
		text.WriteString(piece)
		return nil
	})
	if err != nil {
		// The client has left, or the server is about to end: the connection is cut.
		panic(http.ErrAbortHandler)
	}
	answer := s.envelope(f, f.object, f.choice(text.String(), &reason))
	answer["usage"] = usage{Prompt: req.promptTokens, Total: req.promptTokens + tokens, Completion: tokens}
	reply(w, http.StatusOK, answer)
}

// limit returns how many tokens an answer may have.
func (s *Server) limit(asked *int, prompt int) (int, *apiError) {
	length := s.options.MaxLen
	wanted := 0
	if asked != nil {
		if wanted = *asked; wanted < 1 {
			return 0, badRequest("max_tokens", "max_tokens must be at least 1, got %d.", wanted)
		}
	}
	room := length - wanted
	switch {
	case wanted > length:
		return 0, badRequest("max_tokens", "max_tokens=%d cannot be greater than max_model_len=max_total_tokens=%d. "+
			"Please request fewer output tokens. (parameter=max_tokens, value=%d)", wanted, length, wanted)
	case prompt > room || prompt >= length:
		return 0, badRequest("input_tokens", "You passed %d input tokens and requested %d output tokens. However, the model's context "+
			"length is only %d tokens, resulting in a maximum input length of %d tokens. Please reduce the length of the input prompt. "+
			"(parameter=input_tokens, value=%d)", prompt, wanted, length, room, prompt)
	case asked == nil:
		return length - prompt, nil
	}
	return wanted, nil
}

func (s *Server) envelope(f form, object string, choices ...any) map[string]any {
	if choices == nil {
		choices = []any{}
	}
	return map[string]any{"id": f.id, "object": object, "created": time.Now().Unix(), "model": f.model, "choices": choices}
}

// stream sends one event per token.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, req request, f form, withUsage bool) {
	object := f.object
	if f.first != nil {
		object += ".chunk"
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	send := func(v any) error {
		data, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("encoding an event: %w", err)
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", data); err != nil {
			return fmt.Errorf("sending an event: %w", err)
		}
		return http.NewResponseController(w).Flush()
	}
	if f.first != nil && send(s.envelope(f, object, f.first)) != nil {
		panic(http.ErrAbortHandler)
	}
	tokens, reason, err := s.engine.run(r.Context(), req, func(piece string) error {
		return send(s.envelope(f, object, f.delta(piece, nil)))
	})
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	// A client that left does not miss the end.
	_ = send(s.envelope(f, object, f.delta("", &reason)))
	if withUsage {
		last := s.envelope(f, object)
		last["usage"] = usage{Prompt: req.promptTokens, Total: req.promptTokens + tokens, Completion: tokens}
		_ = send(last)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}
