// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package resume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// answer is the answer of the fake engines to every prompt. As in most models, a token begins with the white space
// before it.
const answer = "Hello,  world!\n\nHere is a list:\n  - ünïcödé 漢字 🙂\n  - \"quotes\" \\ and \"usage\":{}\n\tThe end."

var tokenOf = regexp.MustCompile(`\s*\S+\s?`)

// standIn is a strict fake engine: it refuses whatever a real engine refuses, and continues an answer only as the
// request says.
type standIn struct {
	isVLLM bool
	kind   Kind
	id     string
}

type request struct {
	Model         string `json:"model"`
	Stream        bool   `json:"stream"`
	MaxTokens     int    `json:"max_tokens"`
	Prompt        string `json:"prompt"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
		Continuous   bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
	Messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	} `json:"messages"`
	ContinueFinal       bool  `json:"continue_final_message"`
	AddGenerationPrompt *bool `json:"add_generation_prompt"`
}

// begun returns the part of the answer that is already in the prompt. A chat template drops white space at its end.
func (e standIn) begun(r *request) (string, error) {
	if e.kind == Completion {
		begun, ok := strings.CutPrefix(r.Prompt, "Say it: ")
		if !ok {
			return "", fmt.Errorf("the prompt is %q", r.Prompt)
		}
		return begun, nil
	}
	last := r.Messages[len(r.Messages)-1]
	if e.isVLLM && r.ContinueFinal && (r.AddGenerationPrompt == nil || *r.AddGenerationPrompt) {
		return "", errors.New("continue_final_message and add_generation_prompt are both true")
	}
	if e.isVLLM && r.ContinueFinal != (last.Role == "assistant") {
		return "", fmt.Errorf("the last message is of %s, and continue_final_message is %t", last.Role, r.ContinueFinal)
	}
	if last.Role == "assistant" {
		return strings.TrimSpace(last.Content), nil
	}
	return "", nil
}

// stream returns the whole answer to a request.
func (e standIn) stream(body []byte) (string, error) {
	var r request
	if err := json.Unmarshal(body, &r); err != nil {
		return "", err
	}
	begun, err := e.begun(&r)
	if err != nil {
		return "", err
	}
	rest, ok := strings.CutPrefix(answer, begun)
	if !ok {
		return "", fmt.Errorf("the answer does not begin with %q", begun)
	}
	var out strings.Builder
	send := func(choices, usage string) {
		fmt.Fprintf(&out, `data: {"id":%q,"object":"chunk","created":1,"model":"m","choices":%s%s}`+"\n\n", e.id, choices, usage)
	}
	prompt, tokens, reason := 10+len(tokenOf.FindAllString(begun, -1)), 0, "stop"
	usage := func() string {
		return fmt.Sprintf(`,"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, prompt, tokens, prompt+tokens)
	}
	often := func() string {
		if e.isVLLM && r.StreamOptions.Continuous {
			return usage()
		}
		return ""
	}
	piece := func(text, reason string) string {
		encoded, _ := json.Marshal(text)
		if e.kind == Completion {
			return fmt.Sprintf(`[{"index":0,"text":%s,"finish_reason":%s}]`, encoded, reason)
		}
		return fmt.Sprintf(`[{"index":0,"delta":{"content":%s},"finish_reason":%s}]`, encoded, reason)
	}
	if e.kind == Chat {
		send(`[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]`, often())
	}
	for _, text := range tokenOf.FindAllString(rest, -1) {
		if r.MaxTokens > 0 && tokens == r.MaxTokens {
			reason = "length"
			break
		}
		tokens++
		send(piece(text, "null"), often())
	}
	send(piece("", `"`+reason+`"`), often())
	if r.StreamOptions.IncludeUsage {
		send("[]", usage())
	}
	return out.String() + "data: [DONE]\n\n", nil
}

// got is a stream as a client understands it.
type got struct {
	Text, Finish, ID  string
	Roles, Dones      int
	Prompt, Completed int
	Errors            string
}

func parse(t *testing.T, text string) (out got) {
	t.Helper()
	ids := map[string]bool{}
	for event := range strings.SplitSeq(text, "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		switch {
		case strings.HasPrefix(event, "error: "):
			out.Errors += event
			continue
		case event == "":
			continue
		case data == "[DONE]":
			out.Dones++
			continue
		}
		var c struct {
			ID      string
			Choices []struct {
				Delta struct {
					Role, Content string
				}
				Text   string
				Finish string `json:"finish_reason"`
			}
			Usage counts
		}
		if err := json.Unmarshal([]byte(data), &c); !ok || err != nil {
			t.Fatalf("the event %q: %v", event, err)
		}
		ids[c.ID] = true
		out.ID = c.ID
		for _, choice := range c.Choices {
			out.Text += choice.Delta.Content + choice.Text
			out.Finish += choice.Finish
			if choice.Delta.Role != "" {
				out.Roles++
			}
		}
		out.Prompt, out.Completed = max(out.Prompt, c.Usage.Prompt), max(out.Completed, c.Usage.Completion)
	}
	if len(ids) > 1 {
		t.Errorf("the events have the ids %v", ids)
	}
	return out
}

func bodyOf(kind Kind, most int) string {
	limit := ""
	if most > 0 {
		limit = fmt.Sprintf(`,"max_tokens":%d`, most)
	}
	content := `"messages":[{"role":"user","content":"Say it"}]`
	if kind == Completion {
		content = `"prompt":"Say it: "`
	}
	return `{"model":"m","stream":true,"stream_options":{"include_usage":true},` + content + limit + `}`
}

// play sends a request to an engine that dies after some bytes, and to another one for the rest.
func play(t *testing.T, kind Kind, isVLLM bool, most, cut int) (text string, asked int) {
	t.Helper()
	plan := New(kind, []byte(bodyOf(kind, most)))
	if plan.Problem() != "" {
		t.Fatal(plan.Problem())
	}
	body, err := plan.Body()
	if err != nil {
		t.Fatal(err)
	}
	whole, err := standIn{isVLLM, kind, "first"}.stream(body)
	if err != nil {
		t.Fatal(err)
	}
	var from io.Reader = strings.NewReader(whole)
	if cut < len(whole) {
		from = io.MultiReader(strings.NewReader(whole[:cut]), iotest.ErrReader(io.ErrUnexpectedEOF))
	}
	again := func(body []byte) (io.ReadCloser, error) {
		asked++
		rest, err := standIn{isVLLM, kind, "second"}.stream(body)
		return io.NopCloser(strings.NewReader(rest)), err
	}
	s := NewStream(plan, plenty(), io.NopCloser(iotest.HalfReader(from)), again, func(problem *LostError) []byte {
		if problem == nil {
			return nil
		}
		return []byte("error: " + problem.Problem + "\n\n")
	})
	out, err := io.ReadAll(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), asked
}

// TestEveryCut: wherever an answer breaks off, the client finally has the same text, finish reason and usage as without
// a break.
func TestEveryCut(t *testing.T) {
	for _, kind := range []Kind{Chat, Completion} {
		for _, isVLLM := range []bool{true, false} {
			for _, most := range []int{0, 7} {
				if kind == Completion && most == 0 {
					continue
				}
				t.Run(fmt.Sprint("kind ", kind, ", vLLM ", isVLLM, ", limit ", most), func(t *testing.T) {
					uncut, asked := play(t, kind, isVLLM, most, 1<<30)
					want := parse(t, uncut)
					if asked != 0 || want.Dones != 1 || want.Errors != "" || want.Text == "" || most != 7 && want.Text != answer {
						t.Fatalf("the uninterrupted answer: %+v", want)
					}
					resumed := 0
					for cut := range len(uncut) * 2 { // the engine also sends usages
						text, asked := play(t, kind, isVLLM, most, cut)
						got := parse(t, text)
						resumed += asked
						if got.ID == "second" { // nothing of the first engine had arrived
							got.ID = want.ID
						}
						if cut > 0 && got.Prompt == 0 { // the engine died before its first usage, and the text was complete
							got.Prompt = want.Prompt
						}
						if diff := cmp.Diff(want, got); diff != "" {
							t.Fatalf("cut after %d bytes (-want +got):\n%s\n%s", cut, diff, text)
						}
					}
					if resumed == 0 {
						t.Error("no answer was continued")
					}
				})
			}
		}
	}
}

func TestProblem(t *testing.T) {
	with := func(member string) string {
		return `{"messages":[{"role":"user","content":"x"}],` + member + `}`
	}
	cases := []struct {
		reason string
		kind   Kind
		body   string
		want   string
	}{
		{"a plain chat", Chat, with(`"temperature":0.7`), ""},
		{"tools", Chat, with(`"tools":[{}]`), `the effect of "tools" depends on the whole answer`},
		{"probabilities of tokens", Chat, with(`"logprobs":true`), `the effect of "logprobs" depends on the whole answer`},
		{"a grammar", Chat, with(`"response_format":{"type":"json_object"}`), `the effect of "response_format" depends on the whole answer`},
		{"a penalty", Chat, with(`"presence_penalty":1`), `the effect of "presence_penalty" depends on the whole answer`},
		{"a seed", Chat, with(`"seed":1`), `the effect of "seed" depends on the whole answer`},
		{"a member that nobody knows", Chat, with(`"new":1`), `the effect of "new" depends on the whole answer`},
		{"a member that is not set", Chat, with(`"tools":null`), ""},
		{"several answers", Chat, with(`"n":2`), "the request asks for several answers"},
		{"two limits", Chat, with(`"max_tokens":1,"max_completion_tokens":2`), "the request has two limits of tokens"},
		{"a limit in another form", Chat, with(`"max_tokens":1e3,"max_completion_tokens":2`), "the request has two limits of tokens"},
		{"a limit that is not whole", Chat, with(`"max_tokens":1.5`), `the value of "max_tokens" is not a number of tokens`},
		{"a limit without bounds", Chat, with(`"max_tokens":1e99`), `the value of "max_tokens" is not a number of tokens`},
		{"a role by a name that engines ignore", Chat, `{"messages":[{"role":"assistant","content":"x","Role":"user"}]}`, "the last message already begins the assistant's answer"},
		{"no role", Chat, `{"messages":[{"content":"x"}]}`, "the last message has no role"},
		{"the assistant's turn has begun", Chat, `{"messages":[{"role":"assistant","content":"x"}]}`, "the last message already begins the assistant's answer"},
		{"no messages", Chat, `{}`, "the request has no messages"},
		{"a completion", Completion, `{"prompt":"x","max_tokens":5}`, ""},
		{"a completion with the engine's limit", Completion, `{"prompt":"x"}`, "the request sets no limit on output tokens, so the engine's own limit would start again from zero"},
		{"several prompts", Completion, `{"prompt":["x","y"],"max_tokens":5}`, "the prompt is not a single text"},
		{"a prompt of tokens", Completion, `{"prompt":[1,2],"max_tokens":5}`, "the prompt is not a single text"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			if got := New(c.kind, []byte(c.body)).Problem(); got != c.want {
				t.Errorf("the problem is %q, want %q", got, c.want)
			}
		})
	}
}

// TestLost: an answer that cannot be continued ends with one error, after whole events only.
func TestLost(t *testing.T) {
	const begun = `data: {"id":"1","choices":[{"index":0,"delta":{"content":"Hi"}}]}` + "\n\n"
	delta := func(text string) string {
		return `data: {"id":"1","choices":[{"index":0,"delta":` + text + `}]}` + "\n\n"
	}
	breaks := func(text string) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader(text), iotest.ErrReader(io.ErrUnexpectedEOF))), nil
		}
	}
	cases := []struct {
		reason, body, first string
		second              func() (io.ReadCloser, error)
		want                string
	}{
		{"a request with tools", `{"messages":[{"role":"user"}],"tools":[{}]}`, begun + "data: {", nil, begun + `error: the effect of "tools" depends on the whole answer`},
		{"reasoning", bodyOf(Chat, 0), delta(`{"reasoning_content":"hm"}`) + begun, nil, delta(`{"reasoning_content":"hm"}`) + begun + "error: the answer has reasoning_content"},
		{"a tool call", bodyOf(Chat, 0), delta(`{"tool_calls":[{"index":0}]}`), nil, delta(`{"tool_calls":[{"index":0}]}`) + "error: the answer has tool_calls"},
		{"half a character", bodyOf(Chat, 0), delta(`{"content":"\ufffd"}`), nil, delta(`{"content":"\ufffd"}`) + "error: an event of the answer ends in the middle of a character"},
		{"no other replica", bodyOf(Chat, 0), begun, func() (io.ReadCloser, error) { return nil, errors.New("no replica is left") }, begun + "error: no replica is left"},
		{"the second one dies, too", bodyOf(Chat, 0), begun, breaks(""), begun + "error: another replica continued the answer once already"},
		{"the second one begins to reason", bodyOf(Chat, 0), begun, breaks(delta(`{"reasoning":"hm"}`)), begun + "error: the answer has reasoning"},
		{
			"the second one goes on without the space",
			bodyOf(Chat, 0), delta(`{"content":"Hi "}`), breaks(delta(`{"content":"x"}`)),
			delta(`{"content":"Hi "}`) + "error: the other replica did not repeat the white space at the end of the text already sent",
		},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			first, _ := breaks(c.first)()
			again := func([]byte) (io.ReadCloser, error) {
				if c.second == nil {
					t.Error("the answer is continued")
					return nil, errors.New("unexpected")
				}
				return c.second()
			}
			s := NewStream(New(Chat, []byte(c.body)), plenty(), first, again, func(problem *LostError) []byte {
				if problem == nil {
					return nil
				}
				return []byte("error: " + problem.Problem)
			})
			got, err := io.ReadAll(s)
			if diff := cmp.Diff(c.want, string(got)); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestJoint: the client gets the white space at the joint once, whatever it is and however the other replica splits it
// into tokens.
func TestJoint(t *testing.T) {
	piece := func(text, finish string) string {
		encoded, _ := json.Marshal(text)
		return fmt.Sprintf(`data: {"choices":[{"index":0,"delta":{"content":%s},"finish_reason":%s}]}`, encoded, finish) + "\n\n"
	}
	cases := []struct {
		reason, first string
		second        []string // the last one has the finish reason
		want          string
	}{
		{"only the space and the end in one event", "Hi ", []string{" "}, "Hi "},
		{"text and the end in one event", "Hi ", []string{" there"}, "Hi there"},
		{"no text with the end", "Hi ", []string{" there", ""}, "Hi there"},
		{"the space in two tokens", "Hi\n\n", []string{"\n", "\n there"}, "Hi\n\n there"},
		{"a token with more space", "Hi ", []string{"   there"}, "Hi   there"},
		{"a space that does not break", "Hi\u00a0", []string{"\u00a0there"}, "Hi\u00a0there"},
		{"an ideographic space", "\u6f22\u3000", []string{"\u3000\u5b57"}, "\u6f22\u3000\u5b57"},
		{"mixed spaces", "Hi \u2009\v", []string{" \u2009", "\v\u2028there"}, "Hi \u2009\v\u2028there"},
		{"a next line", "Hi\u0085", []string{"\u0085there"}, "Hi\u0085there"},
		{"a separator that only Python strips", "Hi\x1c", []string{"\x1cthere"}, "Hi\x1cthere"},
		{"no space for Python", "Hi\u200b", []string{"there"}, "Hi\u200bthere"},
		{"a rest that begins with a space", "Hi", []string{"\u3000there"}, "Hi\u3000there"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			first := io.MultiReader(strings.NewReader(piece(c.first, "null")), iotest.ErrReader(io.ErrUnexpectedEOF))
			again := func([]byte) (io.ReadCloser, error) {
				last := len(c.second) - 1
				out := ""
				for _, text := range c.second[:last] {
					out += piece(text, "null")
				}
				return io.NopCloser(strings.NewReader(out + piece(c.second[last], `"stop"`) + "data: [DONE]\n\n")), nil
			}
			s := NewStream(New(Chat, []byte(bodyOf(Chat, 0))), plenty(), io.NopCloser(first), again, func(problem *LostError) []byte {
				if problem != nil {
					t.Error(problem)
				}
				return nil
			})
			text, err := io.ReadAll(s)
			if err != nil {
				t.Fatal(err)
			}
			got := parse(t, string(text))
			if diff := cmp.Diff([]string{c.want, "stop"}, []string{got.Text, got.Finish}); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, text)
			}
		})
	}
}

// TestEngineError: another replica continues an answer if its engine failed. The client gets all other errors
// unchanged, and no error after a whole answer.
func TestEngineError(t *testing.T) {
	delta := func(text, finish string) string {
		return `data: {"id":"1","choices":[{"index":0,"delta":` + text + `,"finish_reason":` + finish + `}]}` + "\n\n"
	}
	const done = "data: [DONE]\n\n"
	const usage = `data: {"id":"1","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}` + "\n\n"
	// vLLM 0.31, create_streaming_error_response.
	const failed = `data: {"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "param": null, "code": 500}}` + "\n\n"
	const refused = `data: {"error": {"message": "no", "type": "BadRequestError", "param": null, "code": 400}}` + "\n\n"
	const broken = ""
	hi, there, stop := delta(`{"content":"Hi"}`, "null"), delta(`{"content":" there"}`, "null"), delta("{}", `"stop"`)
	ownUsage := func(prompt, completion, cut int) string {
		return fmt.Sprintf(`data: {"choices":[],"id":"1","usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"resumed_at_token":%d}}`,
			prompt, completion, prompt+completion, cut) + "\n\n"
	}
	merged := func(text string) string { // in the order of the router's encoder
		return strings.Replace(strings.Replace(text, `"id":"1",`, "", 1), "}\n\n", `,"id":"1"}`+"\n\n", 1)
	}
	mergedThere := `data: {"choices":[{"delta":{"content":" there"},"finish_reason":null,"index":0}],"id":"1"}` + "\n\n"
	tools := `{"messages":[{"role":"user"}],"tools":[{}]}`
	cases := []struct {
		reason, body  string
		first, second []string // the last piece comes with the end of the connection
		want          string
		outcomes      []string
	}{
		{"the engine fails", "", []string{hi, failed + done}, []string{there + stop + done}, hi + mergedThere + merged(stop) + done, []string{"continued"}},
		{"the error is the last thing to arrive", "", []string{hi + failed}, []string{there + stop + done}, hi + mergedThere + merged(stop) + done, []string{"continued"}},
		{"the stream ends in order later", "", []string{hi + failed, done}, []string{there + stop + done}, hi + mergedThere + merged(stop) + done, []string{"continued"}},
		{"the connection stays after the end", "", []string{hi + failed + done, ": later\n\n"}, []string{there + stop + done}, hi + mergedThere + merged(stop) + done, []string{"continued"}},
		{"the engine fails, and the other one dies", "", []string{hi + failed + done}, []string{there, broken}, hi + mergedThere + "error: another replica continued the answer once already", []string{"continued", "another replica continued the answer once already"}},
		{"the connection breaks after the error", "", []string{hi + failed, broken}, []string{there + stop + done}, hi + mergedThere + merged(stop) + done, []string{"continued"}},
		{"the engine fails before the first text", "", []string{failed + done}, []string{there + stop + done}, mergedThere + merged(stop) + done, []string{"continued"}},
		{"no other replica", "", []string{hi + failed + done}, nil, hi + failed, []string{"no replica is left"}},
		{"an answer that cannot be continued", tools, []string{hi + failed + done}, nil, hi + failed + done, nil},
		{"an answer with reasoning", "", []string{delta(`{"reasoning":"hm"}`, "null") + failed + done}, nil, delta(`{"reasoning":"hm"}`, "null") + failed + done, nil},
		{"the request is at fault", "", []string{hi + refused + done}, nil, hi + refused + done, nil},
		{"the request is at fault, and the connection breaks", "", []string{hi + refused, broken}, nil, hi + refused, nil},
		{"the other engine fails, too", "", []string{hi, broken}, []string{there + failed + done}, hi + mergedThere + failed + done, []string{"continued"}},
		{"a member without an error", "", []string{`data: {"error":null,"choices":[]}` + "\n\n" + done}, nil, `data: {"error":null,"choices":[]}` + "\n\n" + done, nil},

		{"a whole answer, and the connection breaks", "", []string{hi + stop, broken}, nil, hi + stop + ownUsage(0, 1, 1) + done, nil},
		{"a whole answer, and an error", "", []string{hi + stop + failed + done}, nil, hi + stop + ownUsage(0, 1, 1) + done, nil},
		{"a whole answer with its usage, and the connection breaks", "", []string{hi + stop + usage, broken}, nil, hi + stop + usage + done, nil},
		{"a whole answer with reasoning, and the connection breaks", "", []string{delta(`{"reasoning":"hm"}`, "null") + stop, broken}, nil, delta(`{"reasoning":"hm"}`, "null") + stop + ownUsage(0, 0, 0) + done, nil},
		{"perhaps one of several answers is whole", `{"messages":[{"role":"user"}],"n":2}`, []string{hi + stop, broken}, nil, hi + stop + "error: the request asks for several answers", []string{"the request asks for several answers"}},
		{"the rest is whole, and the connection breaks", "", []string{hi, broken}, []string{there + stop, broken}, hi + mergedThere + merged(stop) + ownUsage(0, 2, 1) + done, []string{"continued"}},
		{"the rest is whole, and an error comes", "", []string{hi, broken}, []string{there + stop + failed + done}, hi + mergedThere + merged(stop) + ownUsage(0, 2, 1) + done, []string{"continued"}},
		{"the rest has all tokens of the limit", bodyOf(Chat, 2), []string{hi, broken}, []string{there, broken}, hi + mergedThere + merged(delta("{}", `"length"`)) + ownUsage(0, 2, 1) + done, []string{"continued"}},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			body := c.body
			if body == "" {
				body = bodyOf(Chat, 0)
			}
			var outcomes []string
			again := func([]byte) (io.ReadCloser, error) {
				if c.second == nil {
					return nil, errors.New("no replica is left")
				}
				return pieces(c.second), nil
			}
			s := NewStream(New(Chat, []byte(body)), plenty(), pieces(c.first), again, func(problem *LostError) []byte {
				if problem == nil {
					outcomes = append(outcomes, "continued")
					return nil
				}
				outcomes = append(outcomes, problem.Problem)
				return []byte("error: " + problem.Problem)
			})
			got, err := io.ReadAll(s)
			if diff := cmp.Diff(c.want, string(got)) + cmp.Diff(c.outcomes, outcomes); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestUntouched: an unbroken answer passes unchanged, except for usages that the client did not request.
func TestUntouched(t *testing.T) {
	text := ": comment\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\\"usage\\\":{}\"}}], \"usage\": {\"completion_tokens\":1} }\r\n\r\n" +
		"event: x\ndata: y\n\ndata: {\"choices\":[],\"usage\":{\"completion_tokens\":1}}\n\ndata: [DONE]\n\n"
	s := NewStream(New(Chat, []byte(bodyOf(Chat, 0))), plenty(), io.NopCloser(strings.NewReader(text)), nil, nil)
	got, err := io.ReadAll(s)
	if diff := cmp.Diff(strings.Replace(text, `, "usage": {"completion_tokens":1}`, "", 1), string(got)); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
