// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package vllm_test

import (
	"strings"
	"testing"

	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/engine/vllm"
)

// The events of the KV cache carry the token ids of prompts, so users cannot turn them on.
func TestPromptsAreNotPublished(t *testing.T) {
	_, data := presetCatalog(t)
	const own = `{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:6000"}`
	for _, tc := range []struct {
		reason string
		change func(*engine.Input)
	}{
		{"nobody asked for events", func(*engine.Input) {}},
		{"the user asks for events in args", func(in *engine.Input) {
			in.Args = map[string]string{"kv-events-config": own}
		}},
		{"the user asks for events in another spelling", func(in *engine.Input) {
			in.Args = map[string]string{"--kv_events_config": own}
		}},
		{"the user asks for events in the ConfigMap", func(in *engine.Input) {
			in.Config = engine.Config{"vllm": {"kv-events-config.enable_kv_cache_events": "true"}}
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := input(data)
			tc.change(&in)
			got, err := vllm.Command(in)
			if err != nil {
				t.Fatal(err)
			}
			if line := strings.Join(got.Args, " "); strings.Contains(line, "kv-events") || strings.Contains(line, "tcp://") {
				t.Errorf("the engine publishes prompts: %s", line)
			}
			if got.KVEventsPort != 0 {
				t.Errorf("port %d is announced", got.KVEventsPort)
			}
		})
	}
}
