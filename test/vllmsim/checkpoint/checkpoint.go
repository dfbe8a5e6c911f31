// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checkpoint reads a directory with a model as Hugging Face publishes it, and refuses it like vLLM: no
// configuration, no tokenizer, files of the index missing or cut off.
//
// It decides whether the files are whole, and the model's shape. It must not know the model's distribution or flags.
package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Config is the model's shape in config.json.
type Config struct {
	Architectures []string `json:"architectures"`
	ModelType     string   `json:"model_type"`
	Hidden        int      `json:"hidden_size"`
	Layers        int      `json:"num_hidden_layers"`
	Heads         int      `json:"num_attention_heads"`
	KVHeads       int      `json:"num_key_value_heads"`
	HeadDim       int      `json:"head_dim"`
	Intermediate  int      `json:"intermediate_size"`
	Vocabulary    int      `json:"vocab_size"`
	Context       int      `json:"max_position_embeddings"`
	// Text holds the above in multi-modal models.
	Text *Config `json:"text_config,omitempty"`
}

// Model is the content of a directory.
type Model struct {
	Dir    string
	Config Config
	// WeightBytes of all tensors.
	WeightBytes int64
	// Words are the tokens of tokenizer.json by text, empty if it is another kind of tokenizer.
	Words map[string]int
}

// Error is an exception: its kind as Python names it, and its text.
type Error struct{ Kind, Message string }

func (e *Error) Error() string { return e.Kind + ": " + e.Message }

func fail(kind, format string, a ...any) error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, a...)}
}

// Read reads the directory; the names of files with weights match pattern, unless it is empty.
func Read(dir, pattern string) (*Model, error) {
	m := &Model{Dir: dir}
	if err := m.readConfig(); err != nil {
		return nil, err
	}
	if err := m.readTokenizer(); err != nil {
		return nil, err
	}
	if pattern == "" {
		return m, nil
	}
	if err := m.readWeights(pattern); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Model) readConfig() error {
	data, err := os.ReadFile(filepath.Join(m.Dir, "config.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return fail("OSError", "%s does not appear to have a file named config.json. "+
			"Checkout 'https://huggingface.co/%s/tree/main' for available files.", m.Dir, m.Dir)
	}
	if err != nil {
		return fail("OSError", "%v", err)
	}
	if err := json.Unmarshal(data, &m.Config); err != nil {
		return fail("OSError", "It looks like the config file at '%s/config.json' is not a valid JSON file.", m.Dir)
	}
	if m.Config.Text != nil {
		architectures := m.Config.Architectures
		m.Config = *m.Config.Text
		m.Config.Architectures = architectures
	}
	c := &m.Config
	if len(c.Architectures) == 0 {
		return fail("ValueError", "No model architectures are specified")
	}
	if c.Layers < 1 || c.Heads < 1 || c.Hidden < 1 {
		return fail("ValueError", "config.json of %s has no num_hidden_layers, num_attention_heads or hidden_size", m.Dir)
	}
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.HeadDim == 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	return nil
}

// readTokenizer accepts any of vLLM's kinds.
func (m *Model) readTokenizer() error {
	data, err := os.ReadFile(filepath.Join(m.Dir, "tokenizer.json"))
	if err == nil {
		var tokenizer struct {
			Model struct {
				Vocab json.RawMessage `json:"vocab"`
			} `json:"model"`
		}
		if err := json.Unmarshal(data, &tokenizer); err != nil {
			return fail("Exception", "%s/tokenizer.json: %v", m.Dir, err)
		}
		// A list belongs to another kind of tokenizer: no words then.
		if json.Unmarshal(tokenizer.Model.Vocab, &m.Words) != nil {
			m.Words = nil
		}
		return nil
	}
	for _, name := range []string{"tokenizer.model", "tekken.json", "tiktoken.model", "vocab.json", "tokenizer.model.v3"} {
		if _, err := os.Stat(filepath.Join(m.Dir, name)); err == nil {
			return nil
		}
	}
	return fail("OSError", "Can't load tokenizer for '%s'. If you were trying to load it from 'https://huggingface.co/models', "+
		"make sure you don't have a local directory with the same name. Otherwise, make sure '%s' is the correct path to a directory "+
		"containing all relevant files for a tokenizer.", m.Dir, m.Dir)
}

// readWeights opens every file with tensors.
func (m *Model) readWeights(pattern string) error {
	wanted, err := m.index()
	if err != nil {
		return err
	}
	files := slices.Sorted(maps.Keys(wanted))
	if len(files) == 0 {
		found, err := filepath.Glob(filepath.Join(m.Dir, pattern))
		if err != nil || len(found) == 0 {
			return fail("RuntimeError", "Cannot find any model weights with `%s`", m.Dir)
		}
		for _, path := range found {
			files = append(files, filepath.Base(path))
		}
	}
	for _, file := range files {
		tensors, bytes, err := readSafetensors(filepath.Join(m.Dir, file))
		if err != nil {
			return err
		}
		for _, tensor := range wanted[file] {
			if !tensors[tensor] {
				return fail("ValueError", "Following weights were not initialized from checkpoint: {'%s'}", tensor)
			}
		}
		m.WeightBytes += bytes
	}
	return nil
}

// index returns the tensors by file, none without an index.
func (m *Model) index() (map[string][]string, error) {
	data, err := os.ReadFile(filepath.Join(m.Dir, "model.safetensors.index.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err == nil {
		err = json.Unmarshal(data, &index)
	}
	if err != nil {
		return nil, fail("ValueError", "model.safetensors.index.json of %s: %v", m.Dir, err)
	}
	files := map[string][]string{}
	for _, tensor := range slices.Sorted(maps.Keys(index.WeightMap)) {
		file := index.WeightMap[tensor]
		files[file] = append(files[file], tensor)
	}
	return files, nil
}

// maxHeader is the safetensors library's limit, in bytes.
const maxHeader = 100_000_000

// readSafetensors returns the names of a file's tensors and their bytes, and checks its completeness.
func readSafetensors(path string) (tensors map[string]bool, bytes int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, fail("FileNotFoundError", "No such file or directory: %q", path)
	}
	defer func() { _ = file.Close() }()
	const broken = "Error while deserializing header: "
	var length uint64
	if err := binary.Read(file, binary.LittleEndian, &length); err != nil {
		return nil, 0, fail("safetensors_rust.SafetensorError", broken+"header too small (%s)", path)
	}
	if length > maxHeader {
		return nil, 0, fail("safetensors_rust.SafetensorError", broken+"header too large (%s)", path)
	}
	header := make([]byte, length)
	if n, err := file.ReadAt(header, 8); err != nil || n < len(header) {
		return nil, 0, fail("safetensors_rust.SafetensorError", broken+"invalid header length (%s)", path)
	}
	var entries map[string]struct {
		Offsets [2]int64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(header, &entries); err != nil {
		return nil, 0, fail("safetensors_rust.SafetensorError", broken+"invalid JSON in header (%s)", path)
	}
	tensors = map[string]bool{}
	for name, entry := range entries {
		if name != "__metadata__" {
			tensors[name] = true
			bytes = max(bytes, entry.Offsets[1])
		}
	}
	info, err := file.Stat()
	if err != nil || info.Size() != 8+int64(length)+bytes {
		return nil, 0, fail("safetensors_rust.SafetensorError", broken+"incomplete metadata, file not fully covered (%s)", path)
	}
	return tensors, bytes, nil
}

// Rank reads a LoRA adapter's directory and returns its rank.
func Rank(dir string) (int, error) {
	data, err := os.ReadFile(filepath.Join(dir, "adapter_config.json"))
	if err != nil {
		return 0, fail("ValueError", "No adapter found for %s", dir)
	}
	var config struct {
		Rank int `json:"r"`
	}
	if err := json.Unmarshal(data, &config); err != nil || config.Rank < 1 {
		return 0, fail("ValueError", "adapter_config.json of %s has no rank", dir)
	}
	if _, _, err := readSafetensors(filepath.Join(dir, "adapter_model.safetensors")); err != nil {
		return 0, fail("ValueError", "%s doesn't contain tensors", dir)
	}
	return config.Rank, nil
}
