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

// Describer describes models outside the catalogue. The notes are its assumptions, as sentences.
type Describer interface {
	Describe(ctx context.Context, id string) (m model.Model, notes []string, err error)
}

// modelResolver resolves the name of a model from the catalogue, a config.json or the hub.
type modelResolver struct {
	catalog *catalog.Catalog
	hub     func(endpoint, token string) (Describer, error)
	token   string

	endpoint string
	offline  bool
	config   string
}

// bind declares the flags for models outside the catalogue.
func (r *modelResolver) bind(cmd *cobra.Command, w World) {
	r.hub, r.token = w.Hub, w.Getenv("HF_TOKEN")
	cmd.Flags().StringVar(&r.endpoint, "hub-endpoint", "https://huggingface.co",
		"Hugging Face-compatible hub for models outside the catalogue; HF_TOKEN may hold a token")
	cmd.Flags().BoolVar(&r.offline, "offline", false, "do not query the hub")
	cmd.Flags().StringVar(&r.config, "config", "", "config.json of the model, if neither the catalogue nor the hub has it")
}

// Model returns a Workspace's model, and the assumptions about it.
func (r *modelResolver) Model(ctx context.Context, ws *v1beta1.Workspace, _ string) (model.Model, []string, error) {
	return r.model(ctx, ws.Inference.Preset.Name)
}

// model returns the model with a name, and the assumptions about it. With --config, the name is only a label.
func (r *modelResolver) model(ctx context.Context, name string) (model.Model, []string, error) {
	if r.config != "" {
		return r.fromConfig(name)
	}
	m, err := r.catalog.ResolveModel(name)
	if err == nil {
		return m, nil, nil
	}
	if !strings.Contains(name, "/") {
		return model.Model{}, nil, usageError("%w (a Hugging Face id has the form ORG/NAME)", err)
	}
	if r.offline {
		return model.Model{}, nil, usageError("%w (--offline forbids queries to the hub: pass the model's config.json with --config FILE)", err)
	}
	hub, problem := r.hub(r.endpoint, r.token)
	if problem != nil {
		return model.Model{}, nil, usageError("--hub-endpoint: %w", problem)
	}
	m, notes, problem := hub.Describe(ctx, name)
	if problem != nil {
		return model.Model{}, nil, &exitError{code: codeHub, err: r.notDescribed(err, problem)}
	}
	return request.Sized(m, r.catalog), notes, nil
}

// notDescribed joins the hub's error with similar names in the catalogue.
func (r *modelResolver) notDescribed(unknown, problem error) error {
	similar, ok := errors.AsType[*catalog.UnknownError](unknown)
	if !ok || len(similar.Suggestions) == 0 {
		return problem
	}
	return fmt.Errorf("%w; the catalogue has %s", problem, orList(similar.Suggestions))
}

// fromConfig reads the model from a file.
func (r *modelResolver) fromConfig(name string) (model.Model, []string, error) {
	data, err := readFile(r.config, nil)
	if err != nil {
		return model.Model{}, nil, usageError("--config: %w", err)
	}
	files := hfconfig.Files{Config: data}
	// Further files about the format of the weights are in the same directory, if the user downloaded them.
	dir := filepath.Dir(r.config)
	files.Quantization, _ = os.ReadFile(filepath.Join(dir, "hf_quant_config.json"))
	if index, err := os.Open(filepath.Join(dir, "model.safetensors.index.json")); err == nil {
		files.Tensors, err = hfconfig.ReadIndex(index)
		if err := errors.Join(err, index.Close()); err != nil {
			return model.Model{}, nil, usageError("model.safetensors.index.json beside --config %s: %w", r.config, err)
		}
	}
	described, err := hfconfig.ParseFiles(files)
	if err != nil {
		return model.Model{}, nil, usageError("--config %s: %w", r.config, err)
	}
	if name == "" {
		name = filepath.Base(r.config)
	}
	return request.Sized(described.Model(name, "main"), r.catalog), described.Notes, nil
}
