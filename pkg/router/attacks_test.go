// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelberth/modelberth/pkg/router/limit"
)

// raw sends bytes and returns the first line of the answer.
func raw(t *testing.T, server *httptest.Server, text string) string {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(deadline))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line)
}

// TestAttacksOnHTTP sends requests that no client library sends.
func TestAttacksOnHTTP(t *testing.T) {
	var reached sync.Map
	address := engine(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		reached.Store(string(body), true)
		fmt.Fprint(w, "{}")
	})
	settings := open()
	settings.BodyTimeout = 100 * time.Millisecond
	server, counters := front(t, settings, nil, owner("a", "up", address))
	const start = "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
	cases := []struct{ reason, text, want string }{
		{"two lengths", start + "Content-Length: 14\r\nContent-Length: 2\r\n\r\n{\"model\":\"up\"}", "HTTP/1.1 400 Bad Request"},
		{"a length with a sign", start + "Content-Length: +14\r\n\r\n{\"model\":\"up\"}", "HTTP/1.1 400 Bad Request"},
		{"an unknown transfer encoding", start + "Transfer-Encoding: xchunked\r\n\r\n", "HTTP/1.1 501 Not Implemented"},
		{"a header with a space before its colon", start + "Content-Length : 14\r\n\r\n{\"model\":\"up\"}", "HTTP/1.1 400 Bad Request: invalid header name"},
		{"two hosts", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nHost: y\r\nContent-Length: 14\r\n\r\n{\"model\":\"up\"}", "HTTP/1.1 400 Bad Request"},
		{"an absolute URL of another host reaches a replica only", "POST http://169.254.169.254/v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{\"model\":\"up\"}", "HTTP/1.1 200 OK"},
		{"a tunnel", "CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: 169.254.169.254:80\r\n\r\n", "HTTP/1.1 404 Not Found"},
		{"a bomb of headers", start + "X: " + strings.Repeat("a", 64<<10) + "\r\n\r\n", "HTTP/1.1 431 Request Header Fields Too Large"},
		{"a body that trickles", start + "Content-Length: 1000\r\n\r\n{", "HTTP/1.1 400 Bad Request"},
		{"a second request hidden in the first body", start + "Content-Length: 14\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nPOST /v1/completions HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			if got := raw(t, server, c.text); got != c.want {
				t.Errorf("the answer begins with %q, want %q", got, c.want)
			}
		})
	}
	settle(t, counters)
	reached.Range(func(body, _ any) bool {
		if body != `{"model":"up"}` {
			t.Errorf("the engine got %q", body)
		}
		return true
	})
}

// TestSlowClientWithoutKey: a refused client cannot keep its connection open by not sending the body.
func TestSlowClientWithoutKey(t *testing.T) {
	settings := Defaults()
	settings.BodyTimeout = 100 * time.Millisecond
	server, _ := front(t, settings, nil)
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(deadline))
	if _, err := io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn) // until the router closes the connection
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 401 ") {
		t.Errorf("the connection ends with %v after %q", err, answer)
	}
}

// TestFalseUsage: if an engine reports too many tokens, the charge is limited by the bytes of the prompt and the
// answer.
func TestFalseUsage(t *testing.T) {
	address := engine(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"usage":{"prompt_tokens":1,"completion_tokens":1000000000}}`)
	})
	keys := []limit.Key{key(t, map[string]string{"key": secretA, "namespaces": "a", "tokensPerMinute": "1000"})}
	server, counters := front(t, Defaults(), keys, owner("a", "up", address))
	for range 3 {
		if status, body, _ := post(t, server.URL+"/v1/completions", `{"model":"up"}`, "Authorization", "Bearer "+secretA); status != 200 {
			t.Errorf("the answer is %d %s", status, body)
		}
		settle(t, counters)
	}
}

// TestMemoryForBodies: the router refuses a body for which it lacks memory, and does not keep it.
func TestMemoryForBodies(t *testing.T) {
	settings := open()
	settings.BodyBudget = 8 << 10
	server, _ := front(t, settings, nil, owner("a", "up", dead(t)))
	status, body, _ := post(t, server.URL+"/v1/completions", `{"model":"up","x":"`+strings.Repeat("a", 20<<10)+`"}`)
	if status != 503 || codeOf(body) != "router_overloaded" {
		t.Errorf("the answer is %d %s", status, body)
	}
	if status, body, _ := post(t, server.URL+"/v1/completions", `{"model":"nobody"}`); status != 404 {
		t.Errorf("the memory of a refused body is still counted: %d %s", status, body)
	}
}

// TestShareOfMemory: a key that fills its half of the memory does not keep others out.
func TestShareOfMemory(t *testing.T) {
	const secretB = "sk-tenant-b-0123456789"
	settings := Defaults()
	settings.BodyBudget, settings.BodyTimeout = 64<<10, deadline
	keys := []limit.Key{key(t, map[string]string{"key": secretA, "namespaces": "a"}), key(t, map[string]string{"key": secretB, "namespaces": "a"})}
	up := engine(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })
	server, _ := front(t, settings, keys, owner("a", "up", up))
	large := `{"model":"up","x":"` + strings.Repeat("a", 14<<10) + `"}`
	send := func(text, secret string) int {
		status, _, _ := post(t, server.URL+"/v1/completions", text, "Authorization", "Bearer "+secret)
		return status
	}
	// An unfinished body of 24 KiB uses up the key's half, because the buffer doubles to 32 KiB.
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 30000\r\n\r\n%s", secretA, strings.Repeat(" ", 24<<10))
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	until := time.After(deadline)
	r, ok := server.Config.Handler.(*Router)
	if !ok {
		t.Fatalf("the server's handler is a %T", server.Config.Handler)
	}
	for r.buffered.Load() < 32<<10 { // until the router has read all; earlier, the key's next request could pass
		select {
		case <-ticker.C:
		case <-until:
			t.Fatal("the router did not read the body")
		}
	}
	if status := send(`{"model":"up"}`, secretA); status != 503 {
		t.Errorf("a key takes more than its half: status %d", status)
	}
	if status := send(large, secretB); status != 200 {
		t.Errorf("another key gets %d", status)
	}
	_ = conn.Close()
	for send(large, secretA) != 200 {
		select {
		case <-ticker.C:
		case <-until:
			t.Fatal("the memory of a body that broke off stays counted")
		}
	}
}
