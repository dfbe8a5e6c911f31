// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/adapters"
	"github.com/modelberth/modelberth/pkg/router/balance"
	"github.com/modelberth/modelberth/pkg/router/limit"
	"github.com/modelberth/modelberth/pkg/router/models"
)

func TestRefusals(t *testing.T) {
	up := engine(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })
	stalled := owner("a", "stalled")
	stalled.Problem = models.Problem{Reason: "SpendingCeiling", Message: "no", Stalled: true}
	settings := Defaults()
	settings.MaxBody = 5000
	server, _ := front(t, settings, []limit.Key{key(t, map[string]string{"key": secretA, "namespaces": "a", "models": "up,stalled,asleep"})},
		owner("a", "up", up), owner("a", "asleep"), stalled, owner("a", "other", up), owner("b", "theirs", up))
	bearer := []string{"Authorization", "Bearer " + secretA}
	chat := "/v1/chat/completions"
	cases := []struct {
		reason, path, body string
		headers            []string
		status             int
		code               string
	}{
		{"a good request", chat, `{"model":"up"}`, bearer, 200, ""},
		{"KAITO's scheme", chat, `{"model":"up"}`, []string{"Authorization", "APIKey " + secretA}, 200, ""},
		{"Anthropic's header", "/v1/messages", `{"model":"up"}`, []string{"X-Api-Key", secretA}, 200, ""},
		{"the full name", chat, `{"model":"a:stalled"}`, bearer, 503, "model_unavailable"},
		{"no key", chat, `{"model":"up"}`, nil, 401, "invalid_api_key"},
		{"an unknown key", chat, `{"model":"up"}`, []string{"Authorization", "Bearer nobody-has-this-one"}, 401, "invalid_api_key"},
		{"two keys, of which either could count", chat, `{"model":"up"}`, append(bearer, "X-Api-Key", secretA), 401, "invalid_api_key"},
		{"a model outside of the key's list", chat, `{"model":"other"}`, bearer, 403, "model_not_allowed"},
		{"a model of another tenant looks like none", chat, `{"model":"theirs"}`, bearer, 404, "model_not_found"},
		{"its full name, too", chat, `{"model":"b:theirs"}`, bearer, 404, "model_not_found"},
		{"a URL is no model", chat, `{"model":"http://169.254.169.254/"}`, bearer, 404, "model_not_found"},
		{"a path out of the API", "/metrics", `{"model":"up"}`, bearer, 404, "unknown_route"},
		{"a path that loads adapters", "/v1/load_lora_adapter", `{"model":"up"}`, bearer, 404, "unknown_route"},
		{"a path with dots", "/v1/chat/completions/../../metrics", `{"model":"up"}`, bearer, 404, "unknown_route"},
		{"two models", chat, `{"model":"up","model":"theirs"}`, bearer, 400, "invalid_body"},
		{"no model", chat, `{}`, bearer, 400, "missing_model"},
		{"no JSON", chat, `model=up`, bearer, 400, "invalid_body"},
		{"a model without an end", chat, `{"model":"` + strings.Repeat("a", 300) + `"}`, bearer, 400, "invalid_body"},
		{"a large body", chat, `{"model":"up","x":"` + strings.Repeat("a", 6000) + `"}`, bearer, 413, "body_too_large"},
		{"a compressed body", chat, `x`, append(bearer, "Content-Encoding", "gzip"), 415, "invalid_body"},
		{"no replica yet", chat, `{"model":"asleep"}`, bearer, 503, "model_unavailable"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			status, body, header := post(t, server.URL+c.path, c.body, c.headers...)
			if status != c.status || codeOf(body) != c.code {
				t.Errorf("the answer is %d %s, want %d with code %q", status, body, c.status, c.code)
			}
			if status == 503 && header.Get("Retry-After") == "" {
				t.Error("nothing advises when to try again")
			}
		})
	}
	_, body, header := post(t, server.URL+chat, `{"model":"stalled"}`, bearer...)
	want := `{"error":{"message":"no replica of model \"stalled\" answers: the model cannot start until its owner acts (SpendingCeiling); see the conditions of Workspace a:stalled","type":"server_error","param":null,"code":"model_unavailable"}}` + "\n"
	if diff := cmp.Diff(want, body); diff != "" || header.Get("Retry-After") != "300" {
		t.Errorf("Retry-After %q (-want +got):\n%s", header.Get("Retry-After"), diff)
	}
}

func TestModels(t *testing.T) {
	server, _ := front(t, Defaults(), []limit.Key{key(t, map[string]string{"key": secretA, "namespaces": "a", "models": "up,asleep"})},
		owner("a", "up", "192.0.2.1:1"), owner("a", "asleep"), owner("a", "hidden"), owner("b", "theirs"))
	get := func(path string) (int, string) {
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+secretA)
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	status, body := get("/v1/models")
	want := `{"data":[{"id":"asleep","object":"model","created":1,"owned_by":"a:asleep","ready":false},{"id":"up","object":"model","created":1,"owned_by":"a:up","ready":true}],"object":"list"}` + "\n"
	if diff := cmp.Diff(want, body); status != 200 || diff != "" {
		t.Errorf("%d (-want +got):\n%s", status, diff)
	}
	if status, body := get("/v1/models/up"); status != 200 || !strings.Contains(body, `"id":"up"`) {
		t.Errorf("one model: %d %s", status, body)
	}
	for _, name := range []string{"theirs", "hidden"} {
		if status, _ := get("/v1/models/" + name); status != 404 {
			t.Errorf("model %s: %d, want 404", name, status)
		}
	}
}

// TestRequestAtEngine checks the body, the path and the headers of the request that the engine gets.
func TestRequestAtEngine(t *testing.T) {
	type seen struct {
		Path, Query, Host, Body string
		Header                  http.Header
	}
	got := make(chan seen, 1)
	var address string
	address = engine(t, func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		host := req.Host
		if host == address {
			host = "itself"
		}
		got <- seen{req.URL.Path, req.URL.RawQuery, host, string(body), req.Header}
	})
	server, _ := front(t, Defaults(), []limit.Key{key(t, map[string]string{"key": secretA, "namespaces": "a"})}, owner("a", "up", address))
	post(t, server.URL+"/v1/chat/completions?x=1", `{ "stream":true, "cache_salt":"mine", "model":"a:up" }`,
		"Authorization", "Bearer "+secretA, "Cookie", "c=1", "X-Forwarded-For", "1.2.3.4", "Connection", "X-Hop", "X-Hop", "1",
		"Upgrade", "websocket", "Transfer-Encoding", "identity", "X-Request-Id", "7", "Content-Type", "application/json", "User-Agent", "test")
	salt := limitSalt(t)
	const mine = "3fd30542fe3f61b14bd4a4b2dc0b6fb3" // of SHA-256
	want := seen{
		Path: "/v1/chat/completions", Host: "itself",
		Body: `{"stream_options":{"include_usage":true}, "stream":true, "cache_salt":"` + salt + `-` + mine + `", "model":"up" }`,
		Header: http.Header{
			"Content-Type": {"application/json"}, "User-Agent": {"test"}, "X-Request-Id": {"7"},
		},
	}
	have := <-got
	want.Header.Set("Content-Length", fmt.Sprint(len(want.Body)))
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func limitSalt(t *testing.T) string {
	t.Helper()
	keys := limit.NewKeys(1)
	keys.Set([]limit.Key{key(t, map[string]string{"key": secretA, "namespaces": "a"})})
	return keys.Find(secretA).CacheSalt()
}

// TestStream: each event arrives before the engine writes the next one. A usage that only the router requested does not
// arrive.
func TestStream(t *testing.T) {
	next := make(chan struct{})
	address := engine(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, event := range []string{`{"choices":[{"delta":{}}]}`, `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}`, "[DONE]"} {
			fmt.Fprintf(w, "data: %s\n\n", event)
			w.(http.Flusher).Flush() //nolint:errcheck,forcetypeassert // the server's writer
			<-next
		}
	})
	server, counters := front(t, open(), nil, owner("a", "up", address))
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/chat/completions", strings.NewReader(`{"model":"up","stream":true}`))
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	lines := bufio.NewScanner(answer.Body)
	read := func() string {
		for lines.Scan() {
			if lines.Text() != "" {
				return lines.Text()
			}
		}
		return "the end"
	}
	var got []string
	got = append(got, read())
	if load := counters.Loads()[address]; load.Requests != 1 {
		t.Errorf("%d requests are in flight, want 1", load.Requests)
	}
	next <- struct{}{}
	next <- struct{}{}
	got = append(got, read())
	next <- struct{}{}
	got = append(got, read())
	if diff := cmp.Diff([]string{`data: {"choices":[{"delta":{}}]}`, "data: [DONE]", "the end"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCancel: the request at the engine ends as soon as the client leaves.
func TestCancel(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	address := engine(t, func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		close(started)
		<-req.Context().Done()
		close(ended)
	})
	server, counters := front(t, open(), nil, owner("a", "up", address))
	ctx, cancel := context.WithCancel(t.Context())
	finished := make(chan error, 1)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/chat/completions", strings.NewReader(`{"model":"up"}`))
		answer, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = answer.Body.Close()
		}
		finished <- err
	}()
	receive(t, started, "the engine gets no request")
	cancel()
	receive(t, ended, "the engine works on for a client that is gone")
	if err := <-finished; err == nil {
		t.Error("a cancelled request has an answer")
	}
	settle(t, counters)
}

func receive(t *testing.T, from <-chan struct{}, problem string) {
	t.Helper()
	select {
	case <-from:
	case <-time.After(deadline):
		t.Fatal(problem)
	}
}

// settle waits until nothing is in flight. A handler ends shortly after its client.
func settle(t *testing.T, counters *balance.Counters) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	until := time.After(deadline)
	for len(counters.Loads()) > 0 {
		select {
		case <-ticker.C:
		case <-until:
			t.Fatalf("work stays counted: %v", counters.Loads())
		}
	}
}

func TestRetries(t *testing.T) {
	// breaks accepts a request and closes the connection without an answer.
	breaks := func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	}
	// idle answers the first request of a connection, and closes the connection during the next.
	idle := func(t *testing.T) string {
		var served sync.Map
		return engine(t, func(w http.ResponseWriter, req *http.Request) {
			if _, isServed := served.LoadOrStore(req.RemoteAddr, true); !isServed {
				fmt.Fprint(w, "{}")
				return
			}
			breaks(w, req)
		})
	}
	// crashes answers the first request, and breaks the connections of all others.
	crashes := func(t *testing.T) string {
		var served atomic.Bool
		return engine(t, func(w http.ResponseWriter, req *http.Request) {
			if served.Swap(true) {
				breaks(w, req)
			}
		})
	}
	agent := func(refused string) func(t *testing.T) string {
		return func(t *testing.T) string {
			return engine(t, func(w http.ResponseWriter, _ *http.Request) {
				if refused != "" {
					w.Header().Set(adapters.RefusedHeader, refused)
				}
				w.WriteHeader(http.StatusBadGateway)
			})
		}
	}
	cases := []struct {
		reason, path string
		first        func(t *testing.T) string
		status       int
	}{
		{"a refused connection is tried elsewhere", "/v1/chat/completions", dead, 200},
		{"so is one of a path with state, because nothing was sent", "/v1/responses", dead, 200},
		{"a connection that the engine behind an agent refuses", "/v1/chat/completions", agent("true"), 200},
		{"an agent's other failures may come from the request", "/v1/chat/completions", agent(""), 502},
		{"a new connection that breaks: the request may crash engines", "/v1/chat/completions", func(t *testing.T) string { return engine(t, breaks) }, 503},
		{"an idle connection that the engine closed", "/v1/chat/completions", idle, 200},
		{"an idle connection, where the engine may store the request: a new one is used", "/v1/responses", idle, 200},
		{"an idle connection to an engine that the request crashes", "/v1/chat/completions", crashes, 503},
		{"a new connection that breaks where the engine may have stored the request", "/v1/responses", func(t *testing.T) string { return engine(t, breaks) }, 503},
		{"an engine's own error is the answer", "/v1/chat/completions", func(t *testing.T) string {
			return engine(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
		}, 500},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			good := engine(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })
			first := c.first(t)
			server, counters := front(t, open(), nil, owner("a", "up", first, good))
			if strings.Contains(c.reason, "idle") {
				post(t, server.URL+c.path, `{"model":"up"}`, HeaderSession, sessionOf(first, good))
				settle(t, counters)
			}
			status, _, _ := post(t, server.URL+c.path, `{"model":"up"}`, HeaderSession, sessionOf(first, good))
			if status != c.status {
				t.Errorf("the status is %d, want %d", status, c.status)
			}
			settle(t, counters)
		})
	}
}

// TestIdleConnectionOfLastReplica: one replica is dead. The other closes an idle connection, and must not count as
// failed.
func TestIdleConnectionOfLastReplica(t *testing.T) {
	var requests sync.Map
	last := engine(t, func(w http.ResponseWriter, req *http.Request) {
		if _, isServed := requests.LoadOrStore(req.RemoteAddr, true); isServed {
			panic(http.ErrAbortHandler) // closes the connection
		}
		fmt.Fprint(w, "{}")
	})
	gone := dead(t)
	server, counters := front(t, open(), nil, owner("a", "up", gone, last))
	for range 4 {
		if status, body, _ := post(t, server.URL+"/v1/chat/completions", `{"model":"up"}`, HeaderSession, sessionOf(gone, last)); status != 200 {
			t.Errorf("%d %s, want 200", status, body)
		}
		settle(t, counters)
	}
}

// sessionOf returns a session that selects the first of two replicas.
func sessionOf(first, second string) string {
	var counters balance.Counters
	for i := 0; ; i++ {
		name := fmt.Sprint(i)
		hold := counters.Place([]string{first, second}, balance.Request{Session: sessionKey("", name)})
		hold.Release()
		if hold.Replica == first {
			return name
		}
	}
}

// TestDeathInMidAnswer: the client sees a broken connection, never an answer that looks whole.
func TestDeathInMidAnswer(t *testing.T) {
	address := engine(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "half")
		w.(http.Flusher).Flush() //nolint:errcheck,forcetypeassert // the server's writer
		panic(http.ErrAbortHandler)
	})
	server, counters := front(t, open(), nil, owner("a", "up", address))
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/chat/completions", strings.NewReader(`{"model":"up"}`))
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if body, err := io.ReadAll(answer.Body); err == nil {
		t.Errorf("the answer %q looks whole", body)
	}
	settle(t, counters)
}

func TestDeadline(t *testing.T) {
	address := engine(t, func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		<-req.Context().Done()
	})
	settings := open()
	settings.Deadline = 50 * time.Millisecond
	server, counters := front(t, settings, nil, owner("a", "up", address))
	status, body, _ := post(t, server.URL+"/v1/chat/completions", `{"model":"up"}`)
	if status != 504 || codeOf(body) != "deadline_exceeded" {
		t.Errorf("the answer is %d %s", status, body)
	}
	settle(t, counters)
}

func TestRateLimit(t *testing.T) {
	address := engine(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"usage":{"prompt_tokens":90,"completion_tokens":9000}}`)
	})
	server, _ := front(t, Defaults(), []limit.Key{key(t, map[string]string{"key": secretA, "namespaces": "a", "tokensPerMinute": "100"})}, owner("a", "up", address))
	var got []int
	var body string
	var header http.Header
	for range 2 {
		var status int
		status, body, header = post(t, server.URL+"/v1/chat/completions", `{"model":"up"}`, "Authorization", "Bearer "+secretA)
		got = append(got, status)
	}
	if diff := cmp.Diff([]int{200, 429}, got); diff != "" || !strings.Contains(body, "its limit of 100 tokens per minute") || header.Get("Retry-After") == "" {
		t.Errorf("%s, Retry-After %q (-want +got):\n%s", body, header.Get("Retry-After"), diff)
	}
}

// TestHeadersOfAnswers: an engine's headers must not affect the address that all models share.
func TestHeadersOfAnswers(t *testing.T) {
	address := engine(t, func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{"Set-Cookie", "Access-Control-Allow-Origin", "Location", "Server", "X-Request-Id", "Content-Type"} {
			w.Header().Set(name, "x")
		}
		fmt.Fprint(w, "{}")
	})
	server, _ := front(t, open(), nil, owner("a", "up", address))
	_, _, header := post(t, server.URL+"/v1/completions", `{"model":"up"}`)
	header.Del("Date")
	if diff := cmp.Diff(http.Header{"X-Request-Id": {"x"}, "Content-Type": {"x"}, "Content-Length": {"2"}}, header); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestChaos ends requests in every way at once; afterwards nothing is still counted.
func TestChaos(t *testing.T) {
	chaos := engine(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		switch len(body) % 3 {
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			fmt.Fprint(w, "data: x\n\n")
		default:
			<-req.Context().Done()
		}
	})
	settings := open()
	settings.Deadline = 200 * time.Millisecond
	server, counters := front(t, settings, nil, owner("a", "up", chaos, dead(t), dead(t)))
	var wait sync.WaitGroup
	for worker := range 8 {
		wait.Go(func() {
			for i := range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+(worker*i)%40)*10*time.Millisecond)
				text := `{"model":"up","stream":true,"x":"` + strings.Repeat("a", i) + `"}`
				req, _ := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/completions", strings.NewReader(text))
				if answer, err := http.DefaultClient.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
				}
				cancel()
			}
		})
	}
	wait.Wait()
	settle(t, counters)
}
