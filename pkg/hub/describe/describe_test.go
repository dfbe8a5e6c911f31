// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/hub"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/model/hfconfig"
	"github.com/modelberth/modelberth/presets"
)

// repository is the content of a test's hub by path. A path with a leading slash is absolute. Other paths are below
// /org/model/resolve/REVISION/.
type repository map[string]string

const (
	testRepo   = "org/model"
	testCommit = "0123456789abcdef0123456789abcdef01234567"

	apiPath  = "/api/models/org/model/revision/main"
	treePath = "/api/models/org/model/tree/" + testCommit
	config   = `{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
		"num_attention_heads": 14, "num_key_value_heads": 2, "num_hidden_layers": 24, "vocab_size": 151936,
		"tie_word_embeddings": true, "torch_dtype": "bfloat16", "max_position_embeddings": 32768}`
	index = `{"metadata": {"total_size": 988065536}, "weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}}`
	api   = `{"sha": "` + testCommit + `", "gated": false, "cardData": {"license": "apache-2.0"}}`
)

// newTestClient returns a client of the given server with short time limits.
func newTestClient(t *testing.T, endpoint string, change ...func(*hub.Options)) *hub.Client {
	t.Helper()
	o := hub.Options{
		Endpoint: endpoint, HTTP: hub.NewHTTPClient(4), Token: "hf_secret",
		AnswerTimeout: 5 * time.Second, IdleTimeout: 5 * time.Second,
	}
	for _, f := range change {
		f(&o)
	}
	c, err := hub.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// shape returns the shape in config.
func shape() model.Shape {
	return model.Shape{
		Layers: 24, Hidden: 896, Intermediate: 4864, Heads: 14, KVHeads: 2, HeadDim: 64, Vocab: 151936, Tied: true, QKVBias: true,
	}
}

func described(revision string, bytes int64, change ...func(*model.Model)) model.Model {
	m := model.Model{
		Name: "model", HubID: testRepo, Shape: shape(), Context: 32768, License: "apache-2.0",
		Artifacts: []model.Artifact{{
			Engine: "vllm", Repo: testRepo, Revision: revision, Quantization: "bf16", Native: true,
			WeightBytes: bytes, WeightBasis: model.BytesExact,
		}},
	}
	for _, f := range change {
		f(&m)
	}
	return m
}

// ServeHTTP answers as the public hub does.
func (f repository) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	content, ok := f[path]
	if rest, found := strings.CutPrefix(path, "/org/model/resolve/"); found {
		revision, file, _ := strings.Cut(rest, "/")
		w.Header().Set("X-Repo-Commit", testCommit)
		if revision != testCommit && revision != "main" {
			w.Header().Set("X-Error-Code", "RevisionNotFound")
		} else if content, ok = f[file]; !ok {
			w.Header().Set("X-Error-Code", "EntryNotFound")
		}
	} else if !ok && strings.HasPrefix(path, "/api/") {
		w.Header().Set("X-Error-Code", "RepoNotFound")
	}
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
}

// safetensors returns the header of a file, and 64 bytes of the rest.
func safetensors(tensors map[string][2]int64) string {
	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	for name, offsets := range tensors {
		header[name] = map[string]any{"dtype": "BF16", "shape": []int{1}, "data_offsets": offsets}
	}
	raw, err := json.Marshal(header)
	if err != nil {
		return err.Error()
	}
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(raw)))) + string(raw) + strings.Repeat("x", 64)
}

func TestInspect(t *testing.T) {
	for _, tc := range []struct {
		reason string
		served repository
		want   Description
	}{
		{
			"the index says how large the weights are",
			repository{apiPath: api, "config.json": config, "model.safetensors.index.json": index},
			Description{Model: described(testCommit, 988065536)},
		},
		{
			"a gated model with a licence of its own, and a format in a side file",
			repository{
				apiPath:       `{"sha": "` + testCommit + `", "gated": "manual", "cardData": {"license": "other", "license_name": "their\nown"}}`,
				"config.json": config, "model.safetensors.index.json": index, "hf_quant_config.json": `{"quantization": {"quant_algo": "NVFP4"}}`,
			},
			Description{Model: described(testCommit, 988065536, func(m *model.Model) {
				m.Gated, m.License, m.Artifacts[0].Quantization = true, "their own", "nvfp4"
			})},
		},
		{
			"one file, whose header says what it holds, a copy of the embedding included",
			repository{apiPath: api, "config.json": config, "model.safetensors": safetensors(map[string][2]int64{
				"model.norm.weight": {0, 1000}, "lm_head.weight": {1000, 1260337608},
			})},
			Description{
				Model: described(testCommit, 1260337608, func(m *model.Model) { m.Artifacts[0].IdleBytes = 2 * 151936 * 896 }),
				Notes: []string{"about 0.3 GiB of the weights are stored and never loaded: layers for speculative decoding, or a second copy of the embedding"},
			},
		},
		{
			"files with names of their own, and others that no engine loads",
			repository{
				apiPath: api, "config.json": config, "model.safetensors.index.json": `{"metadata": {"total_size": null}}`,
				treePath: `[{"type": "file", "path": "b.safetensors"}, {"type": "file", "path": "a.safetensors"}, {"type": "directory", "path": "x.safetensors"},
					{"type": "file", "path": "consolidated.safetensors"}, {"type": "file", "path": "original/c.safetensors"},
					{"type": "file", "path": "metal/model.safetensors"}, {"type": "file", "path": "a.bin"}, {"type": "file", "path": "adapter_model.safetensors"}]`,
				"a.safetensors": safetensors(map[string][2]int64{"a": {0, 10}}), "b.safetensors": safetensors(map[string][2]int64{"b": {0, 7}, "c": {7, 7}}),
			},
			Description{Model: described(testCommit, 17)},
		},
		{
			"no safetensors at all: the size is computed",
			repository{apiPath: api, "config.json": config, treePath: `[{"type": "file", "path": "pytorch_model.bin"}]`},
			Description{
				Model: described(testCommit, 0, func(m *model.Model) { m.Artifacts[0].WeightBasis = model.BytesEstimated }),
				Notes: []string{"the repository does not publish the size of its weights: the size is computed from the model's shape"},
			},
		},
		{
			"an answer that is no hub's: the commit comes with the file",
			repository{apiPath: `<html>`, "config.json": config, "model.safetensors.index.json": index},
			Description{Model: described(testCommit, 988065536, func(m *model.Model) { m.License = "" })},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			tc.want.Architecture = "Qwen2ForCausalLM"
			got, err := Inspect(t.Context(), newTestClient(t, serve(t, tc.served.ServeHTTP).URL), testRepo, "")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Inspect() (-want +got):\n%s", diff)
			}
		})
	}
}

// A mirror may serve only files, name no commits, and ignore ranges.
func TestDescribeFromAFileServer(t *testing.T) {
	files := map[string]string{
		"/hf/org/model/resolve/v1/config.json":       config,
		"/hf/org/model/resolve/v1/model.safetensors": safetensors(map[string][2]int64{"a": {0, 988065536}}),
	}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		content, ok := files[r.URL.Path]
		if !ok {
			http.Error(w, "404 page not found", http.StatusNotFound)
			return
		}
		fmt.Fprint(w, content)
	})
	got, err := Model(t.Context(), newTestClient(t, s.URL+"/hf"), testRepo, "v1")
	if err != nil {
		t.Fatal(err)
	}
	want := described("v1", 988065536, func(m *model.Model) { m.License = "" })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Model() (-want +got):\n%s", diff)
	}
}

// Content may come from another host, which must not get the token. A renamed repository stays on its host.
func TestDescribeFollowsRedirects(t *testing.T) {
	var tokens []string
	cdn := serve(t, func(w http.ResponseWriter, r *http.Request) {
		tokens = append(tokens, "cdn "+r.URL.Path+" "+r.Header.Get("Authorization"))
		repository{"/c": config, "/i": index}.ServeHTTP(w, r)
	})
	home := serve(t, func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/org/model/resolve/"+testCommit)
		tokens = append(tokens, "home "+path+" "+r.Header.Get("Authorization"))
		switch path {
		case apiPath:
			http.Redirect(w, r, "/api/models/new/name/revision/main", http.StatusTemporaryRedirect)
		case "/api/models/new/name/revision/main":
			fmt.Fprint(w, api)
		case "/config.json":
			http.Redirect(w, r, cdn.URL+"/c?signature=s", http.StatusFound)
		case "/model.safetensors.index.json":
			http.Redirect(w, r, cdn.URL+"/i", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	})
	got, err := Model(t.Context(), newTestClient(t, home.URL), testRepo, "main")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(described(testCommit, 988065536), got); diff != "" {
		t.Errorf("Model() (-want +got):\n%s", diff)
	}
	wantTokens := []string{
		"home /api/models/org/model/revision/main Bearer hf_secret", "home /api/models/new/name/revision/main Bearer hf_secret",
		"home /config.json Bearer hf_secret", "cdn /c ", "home /hf_quant_config.json Bearer hf_secret",
		"home /model.safetensors.index.json Bearer hf_secret", "cdn /i ",
	}
	if diff := cmp.Diff(wantTokens, tokens); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// Every description of a repository is valid in an overlay, too.
func TestCatalogueAcceptsDescriptions(t *testing.T) {
	paths, err := filepath.Glob("../../model/hfconfig/testdata/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("testdata: %d configs, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			served := repository{apiPath: api, "config.json": string(content), "model.safetensors.index.json": index}
			got, err := Model(t.Context(), newTestClient(t, serve(t, served.ServeHTTP).URL), testRepo, "main")
			if err != nil {
				t.Fatal(err)
			}
			overlay, err := json.Marshal(map[string]any{"models": []model.Model{got}})
			if err != nil {
				t.Fatal(err)
			}
			known, err := catalog.Load(presets.FS(), fstest.MapFS{"models.yaml": {Data: overlay}})
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := known.Quantization(got.Artifacts[0].Quantization); !ok {
				t.Errorf("quantization %q is not in the catalogue", got.Artifacts[0].Quantization)
			}
			again, err := known.ResolveModel(testRepo)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, again); diff != "" {
				t.Errorf("model from the catalogue (-described +resolved):\n%s", diff)
			}
		})
	}
}

// The result of any config is within the catalogue's bounds.
func TestCatalogueAcceptsParsedConfigs(t *testing.T) {
	paths, err := filepath.Glob("../../model/hfconfig/testdata/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("testdata: %d configs, %v", len(paths), err)
	}
	tensors, err := hfconfig.ReadIndex(strings.NewReader(index))
	if err != nil {
		t.Fatal(err)
	}
	var models []model.Model
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range regexp.MustCompile(`"[a-z_0-9]+": (\d+|true|false|null)`).FindAllSubmatchIndex(content, -1) {
			for _, value := range []string{"null", "0", "1", "7", "4096", "131072", "16777216"} {
				changed := slices.Concat(content[:key[2]], []byte(value), content[key[3]:])
				facts, err := hfconfig.ParseFiles(hfconfig.Files{Config: changed, Tensors: tensors})
				if err == nil {
					models = append(models, facts.Model(fmt.Sprintf("org/m%d", len(models)), "main"))
				}
			}
		}
	}
	if len(models) < 1000 {
		t.Fatalf("only %d models were made", len(models))
	}
	overlay := fstest.MapFS{}
	for i, some := range slices.Collect(slices.Chunk(models, 500)) {
		data, err := json.Marshal(map[string]any{"models": some})
		if err != nil {
			t.Fatal(err)
		}
		overlay[fmt.Sprintf("%d.yaml", i)] = &fstest.MapFile{Data: data}
	}
	if _, err := catalog.Load(presets.FS(), overlay); err != nil {
		t.Error(err)
	}
}

const way = "pass the model's config.json with --config FILE on the command line, or describe the model in a catalogue overlay in a cluster"

// Pins the messages for people. HUB stands for the hub's address.
func TestDescribeErrors(t *testing.T) {
	const gatedHeader, where = "GatedRepo", "HF_TOKEN, or in a cluster the Secret in modelAccessSecret"
	refuse := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == apiPath && code == gatedHeader {
				fmt.Fprint(w, `{"sha": "`+testCommit+`", "gated": "auto", "cardData": {"license": "llama3.3"}}`)
				return
			}
			w.Header().Set("X-Error-Code", code)
			w.Header().Set("Retry-After", "55")
			w.WriteHeader(status)
		}
	}
	file := func(name, content string) http.HandlerFunc {
		served := repository{apiPath: api, "config.json": config, "model.safetensors.index.json": index}
		served[name] = content
		if content == "" {
			delete(served, name)
		}
		return served.ServeHTTP
	}
	header := func(first string) http.HandlerFunc {
		return repository{apiPath: api, "config.json": config, "model.safetensors": first}.ServeHTTP
	}
	at := "hub: org/model@" + testCommit
	for _, tc := range []struct {
		reason, repo, revision, token string
		hub                           http.HandlerFunc
		want                          string
	}{
		{"no id", "../etc", "", "", nil, `model "../etc": not a model id: give ORG/NAME`},
		{"no organisation", "gpt", "", "", nil, `model "gpt": not a model id: give ORG/NAME`},
		{"unknown", "org/other", "", "", file("", ""), `model "org/other": HUB has no such model: check the spelling, or ` + way},
		{"unknown revision", "", "v9", "", refuse(404, "RevisionNotFound"), `model "org/model": HUB has no revision "v9" of this model: check the branch, tag or commit`},
		{
			"unknown to a mirror without an API", "", "", "", func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
			`model "org/model": HUB has no such model: check the spelling, or ` + way,
		},
		{
			"gated, no token", "", "", "", refuse(401, gatedHeader),
			`model "org/model" is gated: accept its licence (llama3.3) at HUB/org/model and give your account's token (` + where + `), or ` + way,
		},
		{
			"gated, the token does not help", "", "", "hf_secret", refuse(403, gatedHeader),
			`model "org/model" is gated, but the given token's account has not accepted its licence (llama3.3): accept at HUB/org/model, ` +
				`give another account's token (` + where + `), or ` + way,
		},
		{
			"hidden", "", "", "", refuse(401, "RepoNotFound"),
			`model "org/model" does not exist on HUB, or is private: check the spelling, give a token (` + where + `), or ` + way,
		},
		{
			"hidden from the token", "", "", "hf_secret", refuse(401, "RepoNotFound"),
			`model "org/model" does not exist on HUB, or the given token gives no access to it: check the spelling and the token (` + where + `), or ` + way,
		},
		{
			"no config", "", "", "", file("config.json", ""),
			`model "org/model": it has no config.json at revision "main", so its weights are unknown: name the repository with the original weights, or ` + way,
		},
		{
			"a page for a config", "", "", "", file("config.json", "<html>"),
			at + "/config.json: HUB: the response is not the JSON of a Hugging Face-compatible hub: try again, or " + way,
		},
		{
			"a config that is too large", "", "", "", file("config.json", "{"+strings.Repeat(" ", maxConfig)),
			at + "/config.json: the file is larger than the limit of 1048576 bytes: " + way,
		},
		{
			"absurd heads", "", "", "", file("config.json", strings.Replace(config, "14,", "0,", 1)),
			`model "org/model": config.json: num_attention_heads: 0 must be a whole number from 1 to 4096: correct the file, then ` + way,
		},
		{
			"an encoder", "", "", "", file("config.json", `{"model_type": "bert"}`),
			`model "org/model": config.json: model_type "bert" is an encoder, which makes no text`,
		},
		{
			"an absurd index", "", "", "", file("model.safetensors.index.json", `{"metadata": {"total_size": -1}}`),
			`model "org/model": model.safetensors.index.json: metadata.total_size: -1 must be a whole number from 1 to 8796093022208: correct the file, then ` + way,
		},
		{
			"weights that are not safetensors", "", "", "", header("GGUF\xff\xff\xff\xff"),
			at + "/model.safetensors: HUB: not a safetensors file: its header would have 18446744070594578247 bytes: try again, or " + way,
		},
		{
			"a header that is too large", "", "", "", header("\x01\x00\x40\x00\x00\x00\x00\x00"),
			at + "/model.safetensors: the header is larger than the limit of 4194304 bytes: " + way,
		},
		{
			"a header that is not JSON", "", "", "", header("\x03\x00\x00\x00\x00\x00\x00\x00{x}"),
			at + "/model.safetensors: HUB: not a safetensors file: its header is not JSON: invalid character 'x': try again, or " + way,
		},
		{
			"a tensor that ends before it begins", "", "", "", header(safetensors(map[string][2]int64{"a": {9, 8}})),
			at + `/model.safetensors: HUB: tensor "a" extends from byte 9 to 8: try again, or ` + way,
		},
		{"too many requests", "", "", "", refuse(429, ""), "hub: org/model@main: HUB answered 429 Too Many Requests: try again in 55s, or " + way},
		{"broken", "", "", "", refuse(500, ""), "hub: org/model@main: HUB answered 500 Internal Server Error: try again in 55s, or " + way},
		{"slow", "", "", "", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "hub: org/model@main: HUB: no answer within 50ms: try again, or " + way},
		{
			"cut short", "", "", "", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "1000")
				fmt.Fprint(w, `{"sha":`)
			},
			"hub: org/model@main: HUB: unexpected EOF: try again, or " + way,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := httptest.NewServer(tc.hub)
			t.Cleanup(s.CloseClientConnections)
			t.Cleanup(s.Close)
			if tc.repo == "" {
				tc.repo = testRepo
			}
			c := newTestClient(t, s.URL, func(o *hub.Options) {
				o.Token = tc.token
				if tc.reason == "slow" {
					o.AnswerTimeout = 50 * time.Millisecond
				}
			})
			_, err := Model(t.Context(), c, tc.repo, tc.revision)
			if err == nil || !errors.As(err, new(*Error)) {
				t.Fatalf("Model() error = %v, want an Error", err)
			}
			if diff := cmp.Diff(tc.want, strings.ReplaceAll(err.Error(), s.URL, "HUB")); diff != "" {
				t.Errorf("Model() error (-want +got):\n%s", diff)
			}
			if strings.Contains(err.Error(), "hf_secret") {
				t.Errorf("error shows the token: %v", err)
			}
		})
	}
}

// A trickling header must end at the deadline of the call, because it is never silent.
func TestDescribeOutlastsNoTrickle(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/model.safetensors") {
			repository{apiPath: api, "config.json": config}.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Range", strings.Replace(r.Header.Get("Range"), "=", " ", 1)+"/1000")
		w.WriteHeader(http.StatusPartialContent)
		for r.Context().Err() == nil {
			fmt.Fprint(w, "\x00")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(40 * time.Millisecond):
			}
		}
	})
	c := newTestClient(t, s.URL, func(o *hub.Options) { o.AnswerTimeout = 100 * time.Millisecond })
	_, err := Model(t.Context(), c, testRepo, "main")
	away, ok := errors.AsType[*hub.UnreachableError](err)
	if !ok || !strings.HasSuffix(away.Error(), "early: no answer") {
		t.Errorf("Model() = %v, want an UnreachableError for no answer", err)
	}
}

func TestDescribeKindsOfErrors(t *testing.T) {
	s := serve(t, repository{apiPath: api, "config.json": `{"model_type": "bert"}`}.ServeHTTP)
	_, err := Model(t.Context(), newTestClient(t, s.URL), testRepo, "main")
	if !errors.As(err, new(*hfconfig.UnsupportedError)) {
		t.Errorf("Model() of an encoder = %v, want an UnsupportedError", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, err = Model(ctx, newTestClient(t, s.URL), testRepo, "main"); !errors.Is(err, cause) {
		t.Errorf("Model() that the caller ended = %v, want the caller's cause", err)
	}
	s.Close()
	if _, err = Model(t.Context(), newTestClient(t, s.URL), testRepo, "main"); !errors.As(err, new(*hub.UnreachableError)) || !strings.HasSuffix(err.Error(), way) {
		t.Errorf("Model() of a hub that is gone = %v, want an UnreachableError with a way out", err)
	}
}

// FuzzHeader looks for safetensors headers that cause a panic or an impossible count.
func FuzzHeader(f *testing.F) {
	f.Add([]byte(safetensors(map[string][2]int64{"a": {0, 10}, "b": {10, 1 << 42}})))
	f.Add([]byte(safetensors(map[string][2]int64{"a": {-1 << 63, 1<<63 - 1}})))
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, file []byte) {
		if len(file) < 8 {
			return
		}
		length := min(binary.LittleEndian.Uint64(file), uint64(len(file)-8))
		var tensors hfconfig.Tensors
		if err := addHeader(bytes.NewReader(file[8:8+length]), &tensors); err == nil && (tensors.Bytes < 0 || tensors.Bytes > maxTensors) {
			t.Errorf("%d bytes", tensors.Bytes)
		}
	})
}
