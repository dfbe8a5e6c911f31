// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package launch decides whether vLLM would start: contradictory flags, a model not divisible by the parallel sizes,
// too few GPUs or too little memory, an environment unfit for the image's user.
//
// It computes the start-up log's figures by simple arithmetic. It must not know sockets or HTTP, and takes the
// environment as a value.
package launch

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelberth/modelberth/test/vllmsim/args"
	"github.com/modelberth/modelberth/test/vllmsim/checkpoint"
)

// Setup is a server ready to start.
type Setup struct {
	Args  *args.Parsed
	Model *checkpoint.Model
	// Names for requests, the first one first; Adapters are the LoRA modules among them.
	Names    []string
	Adapters []Adapter

	Tensor, Pipeline, Data int
	Nodes, Rank            int
	// MaxLen is the context, MaxSeqs and MaxBatch the sequences and tokens of a batch.
	MaxLen, MaxSeqs, MaxBatch int
	Utilization               float64
	// GPUs of the machine, and their memory.
	GPUs   []string
	GPUGiB float64
	Memory Memory
}

// Adapter is one LoRA module.
type Adapter struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Base string `json:"base_model_name"`
}

// Environment is the relevant part of it.
type Environment struct {
	// Variables by name.
	Variables map[string]string
	// UserKnown reports whether the system has a name for the user id.
	UserKnown bool
	UserID    int
	// SharedBytes is the size of /dev/shm; negative if unknown.
	SharedBytes int64
	// Devices are GPUs with files in /dev.
	Devices []string
}

// Error is an exception; it ends the process with 1.
type Error = checkpoint.Error

func fail(kind, message string) error { return &Error{Kind: kind, Message: message} }

// Check makes vLLM's checks before it loads weights. Load makes the later ones.
func Check(parsed *args.Parsed, env Environment) (*Setup, error) {
	s := &Setup{Args: parsed}
	s.readLayout()
	steps := []func(Environment) error{
		s.checkServe, s.checkUnsupported, s.checkEnvironment, s.readModel, s.checkLayout,
		s.checkModel, s.readLimits, s.checkDevices,
	}
	for _, step := range steps {
		if err := step(env); err != nil {
			return nil, err
		}
	}
	s.Names = parsed.List("served-model-name")
	if len(s.Names) == 0 {
		s.Names = []string{parsed.Model}
	}
	return s, nil
}

// Load makes the checks after the weights are in memory.
func (s *Setup) Load(env Environment) error {
	if err := s.computeMemory(env); err != nil {
		return err
	}
	return s.readAdapters()
}

func (s *Setup) readLayout() {
	number := func(name string) int { return int(s.Args.Int(name, 1)) }
	s.Tensor, s.Pipeline = number("tensor-parallel-size"), number("pipeline-parallel-size")
	s.Data, s.Nodes = number("data-parallel-size"), number("nnodes")
	s.Rank = int(s.Args.Int("node-rank", 0))
}

// Headless reports whether the process has no API server.
func (s *Setup) Headless() bool { return s.Args.On("headless", false) }

// LocalGPUs is how many GPUs this machine contributes.
func (s *Setup) LocalGPUs() int { return s.Tensor * s.Pipeline * s.Data / s.Nodes }

func (s *Setup) readModel(Environment) error {
	pattern := "*.safetensors"
	switch s.Args.Text("load-format", "auto") {
	case "dummy":
		pattern = ""
	case "mistral":
		pattern = "consolidated*.safetensors"
	}
	model, err := checkpoint.Read(s.Args.Model, pattern)
	s.Model = model
	return err
}

func (s *Setup) readAdapters() error {
	for _, text := range s.Args.List("lora-modules") {
		adapter, err := parseAdapter(text)
		if err != nil {
			return err
		}
		if !s.Args.On("enable-lora", false) {
			return fail("RuntimeError", "Loading lora "+adapter.Name+" failed: LoRA is not enabled. Use --enable-lora to enable LoRA.")
		}
		if complaint := s.AdapterComplaint(adapter.Path); complaint != "" {
			return fail("ValueError", "Loading lora "+adapter.Name+" failed: "+complaint)
		}
		s.Adapters = append(s.Adapters, adapter)
	}
	return nil
}

// AdapterComplaint returns vLLM's complaint about the files of an adapter; empty if there is none.
func (s *Setup) AdapterComplaint(path string) string {
	if !s.Args.On("enable-lora", false) {
		return "LoRA is not enabled. Use --enable-lora to enable LoRA."
	}
	rank, err := checkpoint.Rank(path)
	if err != nil {
		return strings.TrimPrefix(err.Error(), "ValueError: ")
	}
	if most := int(s.Args.Int("max-lora-rank", 16)); rank > most {
		return fmt.Sprintf("LoRA rank %d is greater than max_lora_rank %d.", rank, most)
	}
	return ""
}

// UpdatesAdapters reports whether clients may load and unload adapters.
func UpdatesAdapters(variables map[string]string) bool {
	value := strings.ToLower(strings.TrimSpace(variables["VLLM_ALLOW_RUNTIME_LORA_UPDATING"]))
	return value == "1" || value == "true"
}

// parseAdapter reads NAME=PATH or JSON.
func parseAdapter(text string) (Adapter, error) {
	if name, path, found := strings.Cut(text, "="); found && !strings.Contains(text, ",") {
		return Adapter{Name: name, Path: path}, nil
	}
	var adapter Adapter
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&adapter); err != nil || adapter.Name == "" || adapter.Path == "" {
		return adapter, &args.UsageError{
			Usage: "usage: vllm serve [model_tag] [options]", Program: "vllm serve",
			Message: "Invalid JSON format for --lora-modules: " + text,
		}
	}
	return adapter, nil
}
