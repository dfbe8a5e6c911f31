// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/adapters"
)

// liveSettings returns the settings of a pod whose adapters change, with a fake hub.
func liveSettings(t *testing.T, h *fakeHub, more ...string) Settings {
	t.Helper()
	root := t.TempDir()
	args := append([]string{
		"--endpoint", h.URL, "--adapters", filepath.Join(root, "list"), "--adapters-dest", filepath.Join(root, "adapters"),
		"--adapters-engine", "http://127.0.0.1:5001", "--adapters-guard", "127.0.0.1:0", "--adapters-weights", "adapter_model*.safetensors",
		"--adapters-include", "adapter_config.json", "--give-up-after", "2s",
	}, more...)
	s, err := Parse(args, func(name string) string { return map[string]string{"HF_TOKEN": "hf_secret"}[name] }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFetchAdapter: an adapter that comes later is fetched with the checks of one that was there at the start.
func TestFetchAdapter(t *testing.T) {
	weights, config := noise(1<<20), []byte(`{"r":8}`)
	h := newFakeHub(t, map[string][]byte{
		"adapter_model.safetensors": weights, "adapter_config.json": config, "adapter_model.bin": noise(100), "train.py": noise(10),
		"best/adapter_model.safetensors": weights, "best/adapter_config.json": config,
	})
	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	s := liveSettings(t, h)
	for _, a := range []adapters.Adapter{{Name: "first", Repository: testRepo}, {Name: "second", Repository: testRepo + "@" + testCommit, Path: "best"}} {
		if err := fetchAdapter(t.Context(), s, a, nil, logger); err != nil {
			t.Fatal(err)
		}
		want := []string{"adapter_config.json", "adapter_model.safetensors"}
		dir := filepath.Join(s.Live.Root, a.Name)
		if diff := cmp.Diff(want, fetched(t, filepath.Join(dir, a.Path))); diff != "" && a.Path != "" {
			t.Errorf("%s (-want +got):\n%s", a.Name, diff)
		}
		if got, err := os.ReadFile(filepath.Join(dir, a.Path, "adapter_model.safetensors")); err != nil || !bytes.Equal(got, weights) {
			t.Errorf("%s: the content differs (%v)", a.Name, err)
		}
	}
	if diff := cmp.Diff([]string{"adapter_config.json", "adapter_model.safetensors"}, fetched(t, filepath.Join(s.Live.Root, "first"))); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}

	h.mu.Lock()
	h.shas["adapter_model.safetensors"] = strings.Repeat("0", 64)
	h.mu.Unlock()
	for _, tc := range []struct {
		reason  string
		adapter adapters.Adapter
		more    []string
		want    string
	}{
		{"a repository that does not exist", adapters.Adapter{Name: "a", Repository: "org/none"}, nil, `"org/none"`},
		{"other bytes than the hub promises", adapters.Adapter{Name: "b", Repository: testRepo}, nil, "arrived twice with sha256"},
		{"a repository without an adapter", adapters.Adapter{Name: "c", Repository: testRepo, Path: "none"}, nil, "adapter_model"},
		{"no repository's name", adapters.Adapter{Name: "d", Repository: "org/a/../b"}, nil, "--repo is"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			err := fetchAdapter(t.Context(), liveSettings(t, h, tc.more...), tc.adapter, nil, logger)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hf_secret") {
				t.Errorf("error %v, want %q and no token", err, tc.want)
			}
		})
	}
	if strings.Contains(log.String(), "hf_secret") {
		t.Error("the log shows the token")
	}
}

// TestAdaptersFitTheDisk: an adapter that is too large is refused before its first byte. Otherwise the kubelet would evict
// the pod.
func TestAdaptersFitTheDisk(t *testing.T) {
	h := newFakeHub(t, map[string][]byte{"adapter_model.safetensors": noise(3 << 20), "adapter_config.json": []byte("{}")})
	s := liveSettings(t, h)
	s.Live.Limit = 4 << 20
	logger := slog.New(slog.DiscardHandler)
	if err := fetchAdapter(t.Context(), s, adapters.Adapter{Name: "first", Repository: testRepo}, nil, logger); err != nil {
		t.Fatal(err)
	}
	before := h.servedBytes("adapter_model.safetensors")
	err := fetchAdapter(t.Context(), s, adapters.Adapter{Name: "second", Repository: testRepo}, nil, logger)
	if err == nil || !strings.Contains(err.Error(), "the pod has room for") || h.servedBytes("adapter_model.safetensors") != before {
		t.Errorf("error %v after %d bytes", err, h.servedBytes("adapter_model.safetensors")-before)
	}
	// The files of the first one are there: a restart of the agent must not refuse them.
	if err := fetchAdapter(t.Context(), s, adapters.Adapter{Name: "first", Repository: testRepo}, nil, logger); err != nil {
		t.Errorf("an adapter that is already there: %v", err)
	}
}

// TestGuardBeforeEngine: the program refuses the engine's routes for adapters, and is not ready without a list.
func TestGuardBeforeEngine(t *testing.T) {
	dir := volumeDir(t)
	root := t.TempDir()
	p := startPod(t, dir, "--adapters", filepath.Join(root, "list"), "--adapters-dest", filepath.Join(root, "adapters"),
		"--adapters-engine", "http://127.0.0.1:1", "--adapters-guard", "127.0.0.1:0", "--adapters-weights", "*.safetensors")
	var guard string
	waitUntil(t, "both ports are open", func() bool {
		var all []string
		for line := range strings.Lines(p.text()) {
			var entry struct {
				Address string `json:"address"`
			}
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Address != "" {
				all = append(all, "http://"+entry.Address)
			}
		}
		if len(all) == 2 {
			guard = all[1]
		}
		return guard != ""
	})
	for path, want := range map[string]int{adapters.ReadyPath: 503, "/health": 502, "/v1/load_lora_adapter": 403, "/v1/models": 502} {
		if got := status(t, guard+path); got != want {
			t.Errorf("%s is answered %d, want %d", path, got, want)
		}
	}
	end(t, p)
}

func TestLiveSettings(t *testing.T) {
	good := []string{
		"--adapters", "/list", "--adapters-dest", "/adapters", "--adapters-engine", "http://127.0.0.1:5001", "--adapters-guard", ":5000",
		"--adapters-weights", "*.safetensors",
	}
	for _, tc := range []struct{ reason, flag, value, want string }{
		{"no engine", "--adapters-engine", "", "--adapters-engine is"},
		{"an engine that is no URL", "--adapters-engine", "127.0.0.1:5001", "--adapters-engine is"},
		{"a relative directory", "--adapters-dest", "adapters", "--adapters-dest is"},
		{"no guard", "--adapters-guard", "", "--adapters-guard is missing"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			args := append([]string{}, good...)
			_, err := Parse(append(args, tc.flag, tc.value), func(string) string { return "" }, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}
