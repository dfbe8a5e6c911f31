// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resume continues a stream after its replica died. Another replica generates the rest from the part that the
// client already has.
//
// It decides which requests can be continued exactly, the body of the continuation request, and the events for the
// client. It must not know replicas or HTTP.
package resume

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"
)

// Kind is a route whose streams can be continued.
type Kind int

// The kinds.
const (
	Chat Kind = iota + 1
	Completion
)

// plain are the members of a body that mean the same in a continuation. Other members depend on the whole answer, but
// the second engine sees the first part only as a prompt: penalties would not count its tokens, a seed would not count
// its draws, and a grammar or a tool call would begin again.
var plain = []string{ //nolint:gochecknoglobals // a constant table
	"model", "messages", "prompt", "stream", "stream_options", "max_tokens", "max_completion_tokens", "cache_salt",
	"temperature", "top_p", "top_k", "min_p", "stop", "user", "metadata", "ignore_eos", "priority", "n",
}

// Plan describes how to continue the answer to one request.
type Plan struct {
	kind    Kind
	problem string
	members map[string]json.RawMessage
	// limit is the name of the member that limits the tokens of the answer, and most its value. limit is empty if there is
	// none.
	limit string
	most  int
	// keepsUsage: usages in the events of the answer stay, because the client requested them or the router did not.
	keepsUsage bool
}

// New returns the plan for a request.
func New(kind Kind, body []byte) *Plan {
	p := &Plan{kind: kind}
	p.problem = p.read(body)
	if p.problem != "" {
		p.members, p.keepsUsage = nil, true
	}
	return p
}

// Problem returns why the answer cannot be continued; empty if it can.
func (p *Plan) Problem() string { return p.problem }

func (p *Plan) read(body []byte) (problem string) {
	if err := json.Unmarshal(body, &p.members); err != nil {
		return "the body of the request is not an object"
	}
	for _, name := range slices.Sorted(maps.Keys(p.members)) {
		if !slices.Contains(plain, name) && string(p.members[name]) != "null" {
			return fmt.Sprintf("the effect of %q depends on the whole answer", name)
		}
	}
	if n, ok := p.members["n"]; ok && string(n) != "1" && string(n) != "null" {
		return "the request asks for several answers"
	}
	if problem := p.readLimit(); problem != "" {
		return problem
	}
	// These are maps because encoding/json ignores case when it matches the fields of a struct, and engines do not.
	var options map[string]json.RawMessage
	_ = json.Unmarshal(p.members["stream_options"], &options) // absent: false
	_ = json.Unmarshal(options["continuous_usage_stats"], &p.keepsUsage)
	if p.kind == Chat {
		return p.chatProblem()
	}
	var prompt string
	if json.Unmarshal(p.members["prompt"], &prompt) != nil {
		return "the prompt is not a single text"
	}
	if p.limit == "" {
		return "the request sets no limit on output tokens, so the engine's own limit would start again from zero"
	}
	return ""
}

// readLimit reads the limit of the answer's tokens.
func (p *Plan) readLimit() (problem string) {
	for _, name := range []string{"max_tokens", "max_completion_tokens"} {
		var most float64 // 1e3 is a whole number, too
		if json.Unmarshal(p.members[name], &most) != nil || most <= 0 {
			continue
		}
		switch {
		case p.limit != "":
			return "the request has two limits of tokens"
		case most != math.Trunc(most) || most >= math.MaxInt32:
			return fmt.Sprintf("the value of %q is not a number of tokens", name)
		}
		p.limit, p.most = name, int(most)
	}
	return ""
}

func (p *Plan) chatProblem() string {
	var messages []json.RawMessage
	if json.Unmarshal(p.members["messages"], &messages) != nil || len(messages) == 0 {
		return "the request has no messages"
	}
	var last map[string]json.RawMessage
	var role string
	if json.Unmarshal(messages[len(messages)-1], &last) != nil || json.Unmarshal(last["role"], &role) != nil {
		return "the last message has no role"
	}
	if role == "assistant" {
		return "the last message already begins the assistant's answer"
	}
	return ""
}

// Body returns a body that requests `usage` in every event. It gives the number of tokens that the client has.
func (p *Plan) Body() ([]byte, error) {
	options := map[string]json.RawMessage{}
	if text, ok := p.members["stream_options"]; ok {
		if err := json.Unmarshal(text, &options); err != nil {
			return nil, err
		}
	}
	if options == nil {
		options = map[string]json.RawMessage{}
	}
	options["continuous_usage_stats"] = json.RawMessage("true")
	encoded, err := json.Marshal(options)
	if err != nil {
		return nil, err
	}
	p.members["stream_options"] = encoded
	return json.Marshal(p.members)
}

// rest returns the body of the request for the rest of an answer. Chat templates drop white space at the end of a
// message, so the engine has to generate that of the first part again: overlap.
func (p *Plan) rest(text string, tokens int) (body []byte, overlap string, err error) {
	members := maps.Clone(p.members)
	if p.limit != "" {
		members[p.limit] = json.RawMessage(fmt.Sprint(p.most - tokens))
	}
	if p.kind == Completion {
		var prompt string
		if err := json.Unmarshal(members["prompt"], &prompt); err != nil {
			return nil, "", err
		}
		if members["prompt"], err = json.Marshal(prompt + text); err != nil {
			return nil, "", err
		}
		body, err = json.Marshal(members)
		return body, "", err
	}
	begun := strings.TrimRightFunc(text, isSpace)
	overlap = text[len(begun):]
	if begun != "" {
		var messages []json.RawMessage
		if err := json.Unmarshal(members["messages"], &messages); err != nil {
			return nil, "", err
		}
		last, err := json.Marshal(map[string]string{"role": "assistant", "content": begun})
		if err != nil {
			return nil, "", err
		}
		if members["messages"], err = json.Marshal(append(messages, last)); err != nil {
			return nil, "", err
		}
		members["continue_final_message"], members["add_generation_prompt"] = json.RawMessage("true"), json.RawMessage("false")
	}
	body, err = json.Marshal(members)
	return body, overlap, err
}

// isSpace reports whether Python's str.strip removes a character, because vLLM and chat templates call str.strip. The
// router removes these characters itself. Thus an engine that strips fewer also generates all of them again, and the
// client gets each once.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= '\x1c' && r <= '\x1f' }
