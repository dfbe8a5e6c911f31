// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"net/http"
	"testing"
)

// TestPartialName: requests for an adapter reach only replicas that have it. The others would answer 404.
func TestPartialName(t *testing.T) {
	lacks := engine(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such model", http.StatusNotFound) })
	has := engine(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	set := owner("a", "set", lacks, has)
	set.Names = []string{"set", "lora", "unloaded"}
	set.Partial = map[string][]string{"lora": {has}, "unloaded": {}}
	server, _ := front(t, open(), nil, set)
	for range 20 {
		if status, body, _ := post(t, server.URL+"/v1/completions", `{"model":"lora","prompt":"x"}`); status != http.StatusOK {
			t.Fatalf("an adapter that one replica has is answered %d %s", status, body)
		}
	}
	status, body, header := post(t, server.URL+"/v1/completions", `{"model":"unloaded","prompt":"x"}`)
	if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("an adapter whose replica restarts is answered %d %s", status, body)
	}
}
