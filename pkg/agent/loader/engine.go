// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Time limits of requests to the engine. It reads an adapter's files while it loads the adapter.
const (
	listTimeout = 5 * time.Second
	loadTimeout = 2 * time.Minute
	mostBytes   = 1 << 20
	mostMessage = 500
)

// VLLM is the engine at a loopback address.
type VLLM struct {
	// URL without a path.
	URL string
	// Key of the engine's clients; empty if it requires none.
	Key    string
	Client *http.Client
}

// Loaded returns the directories of the loaded adapters, by name.
func (e VLLM) Loaded(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	text, err := e.do(ctx, http.MethodGet, "/v1/models", nil)
	if err != nil {
		return nil, err
	}
	var list struct {
		Data []struct {
			ID     string  `json:"id"`
			Root   string  `json:"root"`
			Parent *string `json:"parent"`
		} `json:"data"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("reading the engine's models: %w", err)
	}
	out := map[string]string{}
	for _, model := range list.Data {
		if model.Parent != nil { // only adapters have a parent
			out[model.ID] = model.Root
		}
	}
	return out, nil
}

// Load loads an adapter from a directory.
func (e VLLM) Load(ctx context.Context, name, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	_, err := e.do(ctx, http.MethodPost, "/v1/load_lora_adapter", map[string]string{"lora_name": name, "lora_path": dir})
	return err
}

// Unload unloads an adapter. Running requests keep it until they end.
func (e VLLM) Unload(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	_, err := e.do(ctx, http.MethodPost, "/v1/unload_lora_adapter", map[string]string{"lora_name": name})
	return err
}

func (e VLLM) do(ctx context.Context, method, path string, body any) ([]byte, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("encoding a request to the engine: %w", err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, e.URL+path, bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("requesting %s: %w", path, err)
	}
	request.Header.Set("Content-Type", "application/json")
	if e.Key != "" {
		request.Header.Set("Authorization", "Bearer "+e.Key)
	}
	answer, err := e.Client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("the engine does not answer: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	out, err := io.ReadAll(io.LimitReader(answer.Body, mostBytes))
	if err != nil {
		return nil, fmt.Errorf("the engine's answer is incomplete: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, refusal(answer.StatusCode, out)
	}
	return out, nil
}

// refusal returns the engine's own message.
func refusal(status int, body []byte) error {
	var answer struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &answer) == nil && answer.Error.Message != "" {
		message := strings.Join(strings.Fields(answer.Error.Message), " ")
		return errors.New("the engine refuses: " + strings.ToValidUTF8(message[:min(len(message), mostMessage)], ""))
	}
	return fmt.Errorf("the engine answers with status %d", status)
}
