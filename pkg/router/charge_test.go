// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/pkg/router/limit"
)

// TestCharge: at the end of a request, its key has paid for the tokens that the request used. The prompt of each
// request is estimated at 1,000 tokens. The limit of 2,000 tokens per minute shows how much is left, because it admits
// a request while at least one token is left.
func TestCharge(t *testing.T) {
	prompt := `{"model":"up","prompt":"` + strings.Repeat("abcd", 1000) + `"}`
	answers := func(status int, body string) func(t *testing.T) string {
		return func(t *testing.T) string {
			return engine(t, func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
				w.WriteHeader(status)
				fmt.Fprint(w, body)
			})
		}
	}
	breaks := func(t *testing.T) string {
		return engine(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	}
	cases := []struct {
		reason  string
		replica func(t *testing.T) string
		// admitted is how many of ten consecutive requests are admitted.
		admitted int
	}{
		{"an overestimated prompt", answers(200, `{"usage":{"prompt_tokens":100,"completion_tokens":100}}`), 10},
		{"a prompt as estimated", answers(200, `{"usage":{"prompt_tokens":1000,"completion_tokens":1}}`), 2},
		{"an engine that reports nothing", answers(200, `{}`), 2},
		{"an engine that reports the answer alone", answers(200, `{"usage":{"completion_tokens":1}}`), 2},
		{"an engine that refuses the request", answers(400, `{"error":{}}`), 10},
		{"an engine that fails at the request", answers(500, `{"error":{}}`), 2},
		{"no replica that accepts a connection", dead, 10},
		{"an engine that dies of the request", breaks, 2},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			keys := []limit.Key{key(t, map[string]string{"key": secretA, "namespaces": "a", "tokensPerMinute": "2000"})}
			// The clock stands still: on a slow machine, the bucket would refill in between.
			server, counters := frontAt(t, testclock.NewFakeClock(time.Now()), Defaults(), keys, owner("a", "up", c.replica(t)))
			admitted := 0
			for range 10 {
				status, _, _ := post(t, server.URL+"/v1/completions", prompt, "Authorization", "Bearer "+secretA)
				if status != http.StatusTooManyRequests {
					admitted++
				}
				settle(t, counters)
			}
			if admitted != c.admitted {
				t.Errorf("%d of 10 requests are admitted, want %d", admitted, c.admitted)
			}
		})
	}
}

// TestChargeOfClientThatGoes: a client that closes its connection still pays for the prompt.
func TestChargeOfClientThatGoes(t *testing.T) {
	started := make(chan struct{}, 10)
	address := engine(t, func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		started <- struct{}{}
		<-req.Context().Done()
	})
	keys := []limit.Key{key(t, map[string]string{"key": secretA, "namespaces": "a", "tokensPerMinute": "1000"})}
	server, counters := front(t, Defaults(), keys, owner("a", "up", address))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		text := `{"model":"up","prompt":"` + strings.Repeat("abcd", 1000) + `"}`
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/completions", strings.NewReader(text))
		req.Header.Set("Authorization", "Bearer "+secretA)
		if answer, err := http.DefaultClient.Do(req); err == nil {
			_ = answer.Body.Close()
		}
	}()
	receive(t, started, "the engine gets no request")
	cancel()
	receive(t, ended, "the client does not end")
	settle(t, counters)
	if status, body, _ := post(t, server.URL+"/v1/completions", `{"model":"up"}`, "Authorization", "Bearer "+secretA); status != http.StatusTooManyRequests {
		t.Errorf("the next request gets %d %s, want 429", status, body)
	}
}

// TestChargeOfStreamClosedEarly: an answer is charged even if its stream breaks off. Engines may report the answer's
// tokens only with the last event.
func TestChargeOfStreamClosedEarly(t *testing.T) {
	address := engine(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0}}`+"\n\n")
		for range 2000 {
			fmt.Fprint(w, `data: {"choices":[{"text":"`+strings.Repeat("word ", 40)+`"}]}`+"\n\n")
		}
		panic(http.ErrAbortHandler)
	})
	keys := []limit.Key{key(t, map[string]string{"key": secretA, "namespaces": "a", "tokensPerMinute": "1000"})}
	server, counters := front(t, Defaults(), keys, owner("a", "up", address))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/completions", strings.NewReader(`{"model":"up","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secretA)
	if answer, err := http.DefaultClient.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, answer.Body) // the answer breaks off
		_ = answer.Body.Close()
	}
	settle(t, counters)
	if status, body, _ := post(t, server.URL+"/v1/completions", `{"model":"up"}`, "Authorization", "Bearer "+secretA); status != http.StatusTooManyRequests {
		t.Errorf("the next request gets %d %s, want 429", status, body)
	}
}

// TestSaltOfRoutes: every route whose engine has a prefix cache gets the salt of the key.
func TestSaltOfRoutes(t *testing.T) {
	got := make(chan string, 1)
	address := engine(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		got <- string(body)
		fmt.Fprint(w, "{}")
	})
	keys := []limit.Key{key(t, map[string]string{"key": secretA, "namespaces": "a"})}
	server, _ := front(t, Defaults(), keys, owner("a", "up", address))
	salt := limitSalt(t)
	for path, isSalted := range map[string]bool{
		"/v1/chat/completions": true, "/v1/completions": true, "/v1/embeddings": true, "/v1/rerank": true,
		"/v1/responses": true, "/v1/messages": true, "/v1/audio/speech": false,
	} {
		post(t, server.URL+path, `{"model":"up"}`, "Authorization", "Bearer "+secretA)
		if body := <-got; strings.Contains(body, `"cache_salt":"`+salt+`"`) != isSalted {
			t.Errorf("%s: the engine gets %s, want the salt: %t", path, body, isSalted)
		}
	}
}
