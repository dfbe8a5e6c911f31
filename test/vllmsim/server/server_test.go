// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/test/vllmsim/server"
)

// long bounds a necessary event.
const long = 20 * time.Second

func options() server.Options {
	return server.Options{
		Version: "1.2.3", Names: []string{"tiny", "org/tiny"}, Root: "/models", Adapters: map[string]string{"lora": "/lora"},
		MaxLen: 32, Sequences: 1, CacheTokens: 1000, CacheInfo: `block_size="16"`, MaxAdapters: 2,
		Vocabulary: map[string]int{"\u2581calm": 7, "\u2581tide": 8, "\u2581quay": 9, "<s>": 1}, VocabularySize: 10,
		Timing: server.Timing{Step: long}, Step: func(context.Context) error { return nil }, Dead: func() {},
	}
}

func ask(t *testing.T, url, method, path, body string, header ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

func askJSON(t *testing.T, url, method, path, body string, header []string) (int, string) {
	t.Helper()
	return ask(t, url, method, path, body, append(header, "Content-Type", "application/json")...)
}

func TestRoutes(t *testing.T) {
	site := httptest.NewServer(server.New(options()))
	defer site.Close()
	for _, tc := range []struct {
		reason, method, path, body string
		status                     int
		want                       string
	}{
		{"health", "GET", "/health", "", 200, ""},
		{"ping", "POST", "/ping", "", 200, ""},
		{"version", "GET", "/version", "", 200, `{"version":"1.2.3"}`},
		{"tokens", "POST", "/tokenize", `{"model":"tiny","prompt":" calm tide"}`, 200, `{"count":2,"max_model_len":32,"token_strs":null,"tokens":[7,8]}`},
		{"no such route", "GET", "/docs", "", 404, `{"detail":"Not Found"}`},
		{
			"no such model", "POST", "/v1/completions", `{"model":"other","prompt":"x"}`, 404,
			"{\"error\":{\"message\":\"The model `other` does not exist.\",\"type\":\"NotFoundError\",\"param\":\"model\",\"code\":404}}",
		},
		{
			"a prompt that is too long", "POST", "/v1/completions", `{"model":"tiny","max_tokens":30,"prompt":"a b c"}`, 400,
			`{"error":{"message":"You passed 3 input tokens and requested 30 output tokens. However, the model's context length is only 32 tokens, ` +
				`resulting in a maximum input length of 2 tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=3)",` +
				`"type":"BadRequestError","param":"input_tokens","code":400}}`,
		},
		{
			"an answer that is too long", "POST", "/v1/chat/completions", `{"max_tokens":33,"messages":[{"role":"user","content":"a"}]}`, 400,
			`{"error":{"message":"max_tokens=33 cannot be greater than max_model_len=max_total_tokens=32. Please request fewer output tokens. ` +
				`(parameter=max_tokens, value=33)","type":"BadRequestError","param":"max_tokens","code":400}}`,
		},
		{
			"no answer", "POST", "/v1/completions", `{"max_tokens":0,"prompt":"a"}`, 400,
			`{"error":{"message":"max_tokens must be at least 1, got 0.","type":"BadRequestError","param":"max_tokens","code":400}}`,
		},
		{
			"tools that nobody parses", "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function"}]}`, 400,
			`{"error":{"message":"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set","type":"BadRequestError","param":null,"code":400}}`,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			status, body := ask(t, site.URL, tc.method, tc.path, tc.body)
			if diff := cmp.Diff([]any{tc.status, tc.want}, []any{status, strings.TrimSpace(body)}); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", tc.method, tc.path, diff)
			}
		})
	}
}

func TestModels(t *testing.T) {
	site := httptest.NewServer(server.New(options()))
	defer site.Close()
	var got struct {
		Data []struct {
			ID     string  `json:"id"`
			Root   string  `json:"root"`
			Parent *string `json:"parent"`
			MaxLen int     `json:"max_model_len"`
		} `json:"data"`
	}
	_, body := ask(t, site.URL, "GET", "/v1/models", "")
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, card := range got.Data {
		parent := "-"
		if card.Parent != nil {
			parent = *card.Parent
		}
		lines = append(lines, strings.Join([]string{card.ID, card.Root, parent}, " "))
	}
	if diff := cmp.Diff([]string{"tiny /models -", "org/tiny /models -", "lora /lora tiny"}, lines); diff != "" || got.Data[0].MaxLen != 32 {
		t.Errorf("models (-want +got):\n%s\nwith %d tokens", diff, got.Data[0].MaxLen)
	}
}

type answer struct {
	Object  string `json:"object"`
	Model   string `json:"model"`
	Choices []struct {
		Text    string `json:"text"`
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
		Reason *string `json:"finish_reason"`
	} `json:"choices"`
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Total      int `json:"total_tokens"`
		Completion int `json:"completion_tokens"`
	} `json:"usage"`
}

func complete(t *testing.T, url, path, body string) answer {
	t.Helper()
	status, text := ask(t, url, "POST", path, body)
	var a answer
	if err := json.Unmarshal([]byte(text), &a); err != nil || status != http.StatusOK || len(a.Choices) != 1 || a.Choices[0].Reason == nil {
		t.Fatalf("POST %s %s = %d %s (%v)", path, body, status, text, err)
	}
	return a
}

func TestAnswers(t *testing.T) {
	site := httptest.NewServer(server.New(options()))
	defer site.Close()
	const chat = `{"model":"org/tiny","messages":[{"role":"user","content":"Hello"}]`
	first := complete(t, site.URL, "/v1/chat/completions", chat+`}`)
	again := complete(t, site.URL, "/v1/chat/completions", strings.Replace(chat, `"Hello"`, `[{"type":"text","text":"Hello"}]`, 1)+`}`)
	if first.Choices[0].Message.Content == "" || first.Choices[0].Message.Content != again.Choices[0].Message.Content {
		t.Errorf("the same chat is answered with %q and %q", first.Choices[0].Message.Content, again.Choices[0].Message.Content)
	}
	if *first.Choices[0].Reason != "stop" || first.Model != "org/tiny" || first.Object != "chat.completion" {
		t.Errorf("answer %+v", first)
	}
	if n := len(strings.Fields(first.Choices[0].Message.Content)); n != first.Usage.Completion || first.Usage.Total != n+first.Usage.Prompt {
		t.Errorf("%d words and usage %+v", n, first.Usage)
	}
	short := complete(t, site.URL, "/v1/completions", `{"prompt":"Hello","max_tokens":3}`)
	if len(strings.Fields(short.Choices[0].Text)) != 3 || *short.Choices[0].Reason != "length" || short.Model != "tiny" {
		t.Errorf("three tokens: %+v", short)
	}
	adapter := complete(t, site.URL, "/v1/completions", `{"model":"lora","prompt":"Hello","max_tokens":8,"ignore_eos":true}`)
	base := complete(t, site.URL, "/v1/completions", `{"prompt":"Hello","max_tokens":8,"ignore_eos":true}`)
	if adapter.Choices[0].Text == base.Choices[0].Text || base.Usage.Completion != 8 {
		t.Errorf("an adapter answers %q, its model %q", adapter.Choices[0].Text, base.Choices[0].Text)
	}
}

func TestStream(t *testing.T) {
	site := httptest.NewServer(server.New(options()))
	defer site.Close()
	const body = `{"messages":[{"role":"user","content":"Hello"}],"max_tokens":4,"ignore_eos":true`
	whole := complete(t, site.URL, "/v1/chat/completions", body+`}`)
	_, text := ask(t, site.URL, "POST", "/v1/chat/completions", body+`,"stream":true,"stream_options":{"include_usage":true}}`)
	events := strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n")
	var got string
	var last answer
	for _, event := range events[:len(events)-1] {
		last = answer{}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(event, "data: ")), &last); err != nil {
			t.Fatal(err)
		}
		for _, choice := range last.Choices {
			got += choice.Delta.Content
		}
	}
	// The role, four tokens, the reason, the usage, the end.
	if len(events) != 8 || events[7] != "data: [DONE]" || got != whole.Choices[0].Message.Content {
		t.Errorf("%d events with %q, the whole is %q:\n%s", len(events), got, whole.Choices[0].Message.Content, text)
	}
	if diff := cmp.Diff(whole.Usage, last.Usage); diff != "" || len(last.Choices) != 0 {
		t.Errorf("usage (-whole +stream):\n%s", diff)
	}
}

func TestMetrics(t *testing.T) {
	o := options()
	entered, release := make(chan struct{}), make(chan struct{})
	o.Step = func(context.Context) error {
		entered <- struct{}{}
		<-release
		return nil
	}
	site := httptest.NewServer(server.New(o))
	defer site.Close()
	const body = `{"prompt":"Hello","max_tokens":1}`
	done := make(chan struct{}, 2)
	for range 2 {
		go func() {
			defer func() { done <- struct{}{} }()
			resp, err := http.Post(site.URL+"/v1/completions", "application/json", strings.NewReader(body))
			if err == nil {
				_ = resp.Body.Close()
			}
		}()
	}
	<-entered
	// One sequence runs at once; the other may not have arrived yet.
	deadline := time.Now().Add(long)
	for {
		_, text := ask(t, site.URL, "GET", "/metrics", "")
		if has(text, `vllm:num_requests_running{engine="0",model_name="tiny"} 1.0`) && has(text, `vllm:num_requests_waiting{engine="0",model_name="tiny"} 1.0`) {
			if !has(text, `vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.001`) {
				t.Errorf("no token of 1000 is used:\n%s", text)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no request waits:\n%s", text)
		}
	}
	release <- struct{}{}
	<-entered
	release <- struct{}{}
	<-done
	<-done
	_, text := ask(t, site.URL, "GET", "/metrics", "")
	for _, line := range []string{
		`vllm:prompt_tokens_total{engine="0",model_name="tiny"} 2.0`,
		`vllm:generation_tokens_total{engine="0",model_name="tiny"} 2.0`,
		`vllm:request_success_total{engine="0",model_name="tiny",finished_reason="length"} 2.0`,
		`vllm:time_to_first_token_seconds_count{engine="0",model_name="tiny"} 2.0`,
		`vllm:inter_token_latency_seconds_count{engine="0",model_name="tiny"} 0.0`,
		`vllm:num_requests_running{engine="0",model_name="tiny"} 0.0`,
		`vllm:cache_config_info{block_size="16"} 1.0`,
		`vllm:lora_requests_info{max_lora="2",running_lora_adapters="",waiting_lora_adapters=""} 1.0`,
	} {
		if !has(text, line) {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
}

func has(text, line string) bool {
	scanner := bufio.NewScanner(strings.NewReader(text))
	for scanner.Scan() {
		if scanner.Text() == line {
			return true
		}
	}
	return false
}

func TestKeys(t *testing.T) {
	o := options()
	o.APIKeys = []string{"secret"}
	site := httptest.NewServer(server.New(o))
	defer site.Close()
	for _, tc := range []struct {
		reason, path, key string
		want              int
	}{
		{"no key", "/v1/models", "", 401},
		{"a wrong one", "/v1/models", "Bearer x", 401},
		{"the right one", "/v1/models", "Bearer secret", 200},
		{"health needs none", "/health", "", 200},
	} {
		if got, _ := ask(t, site.URL, "GET", tc.path, "", "Authorization", tc.key); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.reason, got, tc.want)
		}
	}
}

// A hanging engine does not answer, while the server reports itself healthy. After the time limit of a step, the server
// reports the failure.
func TestEngineHangs(t *testing.T) {
	frozen := server.New(options())
	frozen.Freeze()
	o := options()
	dead := make(chan struct{})
	o.Timing.Step = time.Millisecond
	o.Step = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	o.Dead = func() { close(dead) }
	lost := server.New(o)
	for name, s := range map[string]*server.Server{"frozen": frozen, "lost": lost} {
		t.Run(name, func(t *testing.T) {
			site := httptest.NewServer(s)
			defer site.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, site.URL+"/v1/completions", strings.NewReader(`{"prompt":"a"}`))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				_ = resp.Body.Close()
				t.Errorf("answer %d", resp.StatusCode)
			}
			if name == "frozen" && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want no answer", err)
			}
			if status, _ := ask(t, site.URL, "GET", "/health", ""); status != http.StatusOK {
				t.Errorf("health %d", status)
			}
		})
	}
	<-dead
	lost.Fail()
	site := httptest.NewServer(lost)
	defer site.Close()
	if status, _ := ask(t, site.URL, "GET", "/health", ""); status != http.StatusServiceUnavailable {
		t.Errorf("health of a dead engine: %d", status)
	}
}
