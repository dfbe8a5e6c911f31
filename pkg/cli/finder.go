// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/model/hfconfig"
	"github.com/modelberth/modelberth/pkg/request"
)

// Describer describes models outside the catalogue, and returns its assumptions as sentences.
type Describer interface {
	Describe(ctx context.Context, id string) (m model.Model, notes []string, err error)
}

// finder finds models: in the catalogue, in a config.json, on the hub.
type finder struct {
	catalog *catalog.Catalog
	hub     func(endpoint, token string) (Describer, error)
	token   string

	endpoint string
	offline  bool
	config   string
}

// bind declares the flags for models outside the catalogue.
func (f *finder) bind(cmd *cobra.Command, w World) {
	f.hub, f.token = w.Hub, w.Getenv("HF_TOKEN")
	cmd.Flags().StringVar(&f.endpoint, "hub-endpoint", "https://huggingface.co",
		"Hugging Face-compatible hub for models outside the catalogue; HF_TOKEN may hold a token")
	cmd.Flags().BoolVar(&f.offline, "offline", false, "never query the hub")
	cmd.Flags().StringVar(&f.config, "config", "", "config.json of the model, if neither the catalogue nor the hub has it")
}

// Model returns a Workspace's model, and the assumptions about it.
func (f *finder) Model(ctx context.Context, ws *v1beta1.Workspace, _ string) (model.Model, []string, error) {
	return f.model(ctx, ws.Inference.Preset.Name)
}

// model returns the model of a name, and the assumptions about it. With --config, the name is only a label.
func (f *finder) model(ctx context.Context, name string) (model.Model, []string, error) {
	if f.config != "" {
		return f.fromConfig(name)
	}
	m, err := f.catalog.ResolveModel(name)
	if err == nil {
		return m, nil, nil
	}
	if !strings.Contains(name, "/") {
		return model.Model{}, nil, usageError("%w (a Hugging Face id has the form ORG/NAME)", err)
	}
	if f.offline {
		return model.Model{}, nil, usageError("%w (--offline forbids queries to the hub: pass the model's config.json with --config FILE)", err)
	}
	hub, problem := f.hub(f.endpoint, f.token)
	if problem != nil {
		return model.Model{}, nil, usageError("--hub-endpoint: %w", problem)
	}
	m, notes, problem := hub.Describe(ctx, name)
	if problem != nil {
		return model.Model{}, nil, &exitError{code: codeHub, err: f.notDescribed(err, problem)}
	}
	return request.Sized(m, f.catalog), notes, nil
}

// notDescribed joins the hub's error with similar names in the catalogue.
func (f *finder) notDescribed(unknown, problem error) error {
	similar, ok := errors.AsType[*catalog.UnknownError](unknown)
	if !ok || len(similar.Suggestions) == 0 {
		return problem
	}
	return fmt.Errorf("%w; the catalogue has %s", problem, orList(similar.Suggestions))
}

// fromConfig reads the model from a file.
func (f *finder) fromConfig(name string) (model.Model, []string, error) {
	data, err := readFile(f.config, nil)
	if err != nil {
		return model.Model{}, nil, usageError("--config: %w", err)
	}
	files := hfconfig.Files{Config: data}
	// Further files about the format of the weights are in the same directory, if they were downloaded, too.
	dir := filepath.Dir(f.config)
	files.Quantization, _ = os.ReadFile(filepath.Join(dir, "hf_quant_config.json"))
	if index, err := os.Open(filepath.Join(dir, "model.safetensors.index.json")); err == nil {
		files.Tensors, err = hfconfig.ReadIndex(index)
		if err := errors.Join(err, index.Close()); err != nil {
			return model.Model{}, nil, usageError("model.safetensors.index.json beside --config %s: %w", f.config, err)
		}
	}
	described, err := hfconfig.ParseFiles(files)
	if err != nil {
		return model.Model{}, nil, usageError("--config %s: %w", f.config, err)
	}
	if name == "" {
		name = filepath.Base(f.config)
	}
	return request.Sized(described.Model(name, "main"), f.catalog), described.Notes, nil
}
