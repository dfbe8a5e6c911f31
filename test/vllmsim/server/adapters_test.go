// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/test/vllmsim/server"
)

// TestAdaptersAtRunTime: the routes for adapters answer as vLLM's do, in this order.
func TestAdaptersAtRunTime(t *testing.T) {
	o := options()
	o.APIKeys = []string{"secret"}
	o.LoadAdapter = func(path string) string {
		switch path {
		case "/none":
			return "No adapter found for /none"
		case "/large":
			return "LoRA rank 64 is greater than max_lora_rank 16."
		}
		return ""
	}
	site := httptest.NewServer(server.New(o))
	defer site.Close()
	const load, unload = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
	for _, tc := range []struct {
		reason, method, path, body string
		status                     int
		want                       string
	}{
		{"a new adapter", "POST", load, `{"lora_name":"new","lora_path":"/new"}`, 200, "Success: LoRA adapter 'new' added successfully."},
		{"it is listed", "GET", "/v1/models", "", 200, `"id":"new","object":"model"`},
		{"it answers", "POST", "/v1/completions", `{"model":"new","prompt":"x","max_tokens":1}`, 200, `"model":"new"`},
		{"a loaded name", "POST", load, `{"lora_name":"new","lora_path":"/other"}`, 400, "has already been loaded"},
		{"in place", "POST", load, `{"lora_name":"new","lora_path":"/other","load_inplace":true}`, 200, "added"},
		{"without a path", "POST", load, `{"lora_name":"x"}`, 400, "Field required"},
		{"an empty name", "POST", load, `{"lora_name":"","lora_path":"/x"}`, 400, "must be provided"},
		{"no files", "POST", load, `{"lora_name":"x","lora_path":"/none"}`, 404, "No adapter found for /none"},
		{"a rank that is too high", "POST", load, `{"lora_name":"x","lora_path":"/large"}`, 500, "greater than max_lora_rank"},
		{"an adapter of the command line", "POST", unload, `{"lora_name":"lora"}`, 200, "removed successfully"},
		{"an adapter that is gone", "POST", unload, `{"lora_name":"lora"}`, 404, "cannot be found"},
		{"requests for it", "POST", "/v1/completions", `{"model":"lora","prompt":"x"}`, 404, "does not exist"},
		{"the other name of the route", "POST", "/adapters", `{"name":"second","src":"/s"}`, 200, "added"},
		{"and of unloading", "DELETE", "/adapters/second", "", 200, "removed"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			header := []string{"Authorization", "Bearer secret"}
			status, body := askJSON(t, site.URL, tc.method, tc.path, tc.body, header)
			if status != tc.status || !strings.Contains(body, tc.want) {
				t.Errorf("%d %s, want %d with %q", status, body, tc.status, tc.want)
			}
		})
	}
	if status, _ := ask(t, site.URL, "POST", load, `{"lora_name":"y","lora_path":"/y"}`, "Authorization", "Bearer secret"); status != 400 {
		t.Errorf("a body without the type of JSON is answered %d", status)
	}
	if status, _ := askJSON(t, site.URL, "POST", load, `{"lora_name":"y","lora_path":"/y"}`, nil); status != 401 {
		t.Errorf("a client without a key is answered %d", status)
	}
	closed := httptest.NewServer(server.New(options()))
	defer closed.Close()
	if status, _ := askJSON(t, closed.URL, "POST", load, `{"lora_name":"y","lora_path":"/y"}`, nil); status != 404 {
		t.Errorf("without the variable, the route is answered %d", status)
	}
}
