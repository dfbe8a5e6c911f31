// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHubStandsInForTheCatalogue(t *testing.T) {
	models, err := models()
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	models.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/microsoft/phi-4/resolve/main/config.json", http.NoBody))
	var got map[string]any
	if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
		t.Fatalf("config.json of microsoft/phi-4: %v: %s", err, answer.Body)
	}
	want := map[string]any{
		"architectures": []any{"LlamaForCausalLM"}, "model_type": "llama", "torch_dtype": "bfloat16", "hidden_act": "silu",
		"hidden_size": 5120.0, "intermediate_size": 17920.0, "num_hidden_layers": 40.0, "num_attention_heads": 40.0,
		"num_key_value_heads": 10.0, "head_dim": 128.0, "max_position_embeddings": 16384.0, "vocab_size": 100352.0, "tie_word_embeddings": false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}
