// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sync/semaphore"

	"github.com/modelberth/modelberth/pkg/hub"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/model/hfconfig"
)

// Bounds of the files that describe a model.
const (
	maxConfig = hfconfig.MaxConfig
	// maxIndex bounds an index. It lists every tensor, and models with many experts have several 100,000.
	maxIndex = 32 << 20
)

// Description is a repository's description of its model.
type Description struct {
	// Model has one artifact, pinned to the revision's commit.
	Model model.Model
	// Architecture is the model's class.
	Architecture string
	// Notes have a sentence for each assumption or omission.
	Notes []string
}

// Model works like Inspect, for callers that need only the model.
func Model(ctx context.Context, c *hub.Client, repo, revision string) (model.Model, error) {
	d, err := Inspect(ctx, c, repo, revision)
	return d.Model, err
}

// Inspect returns the description of the model in a hub's repository, org/name, at a branch, tag or commit. An empty
// revision means main. Its errors are *Errors.
func Inspect(ctx context.Context, c *hub.Client, repo, revision string) (Description, error) {
	return inspector{Client: c, headers: semaphore.NewWeighted(maxHeaders)}.describe(ctx, repo, revision)
}

// inspector queries one hub, with the token of the requesting user.
type inspector struct {
	*hub.Client
	// headers limits the indexes and headers of weights that are read at once.
	headers *semaphore.Weighted
}

func (c inspector) describe(ctx context.Context, repo, revision string) (Description, error) {
	if revision == "" {
		revision = "main"
	}
	d, license, err := c.inspect(ctx, repo, revision)
	if err != nil {
		return Description{}, &Error{Endpoint: c.Endpoint(), Repo: repo, Revision: revision, License: license, Err: err}
	}
	return d, nil
}

// inspect returns the licence even if it fails, because the user may have to accept it.
func (c inspector) inspect(ctx context.Context, repo, revision string) (Description, string, error) {
	if !isRepo(repo) {
		return Description{}, "", errNotAnID
	}
	info, err := c.askAPI(ctx, repo, revision)
	if err != nil {
		return Description{}, "", err
	}
	at := hub.File{Repo: repo, Revision: revision}
	if info.Commit != "" {
		at.Revision = info.Commit
	}
	files, commit, err := c.configs(ctx, at)
	if err != nil {
		return Description{}, info.License, err
	}
	if commit != "" {
		at.Revision = commit
	}
	if files.Tensors, err = c.weights(ctx, at); err != nil {
		return Description{}, info.License, err
	}
	facts, err := hfconfig.ParseFiles(files)
	if err != nil {
		return Description{}, info.License, err
	}
	d := Description{Model: facts.Model(repo, at.Revision), Architecture: facts.Architecture, Notes: facts.Notes}
	d.Model.Gated, d.Model.License = info.Gated, info.License
	if facts.WeightBytes == 0 {
		d.Notes = append(d.Notes, "the repository does not publish the size of its weights: the size is computed from the model's shape")
	}
	return d, info.License, nil
}

// askAPI returns the API's answer. It is empty, without an error, for a mirror that serves only files.
func (c inspector) askAPI(ctx context.Context, repo, revision string) (hub.Info, error) {
	known, err := c.Info(ctx, repo, revision)
	if err != nil && hub.LacksAPI(err) {
		return hub.Info{}, nil
	}
	return known, err
}

// configs fetches config.json and hf_quant_config.json, and their commit if the answer names it.
func (c inspector) configs(ctx context.Context, at hub.File) (hfconfig.Files, string, error) {
	config, commit, err := readConfig(ctx, c.Client, at, "config.json")
	if err != nil {
		return hfconfig.Files{}, "", err
	}
	if commit != "" {
		at.Revision = commit
	}
	side, _, err := readConfig(ctx, c.Client, at, "hf_quant_config.json")
	if err != nil && !isMissing(err) {
		return hfconfig.Files{}, "", err
	}
	return hfconfig.Files{Config: config, Quantization: side}, commit, nil
}

// readConfig returns a small file of the repository, and its commit if the hub names it.
func readConfig(ctx context.Context, c *hub.Client, at hub.File, path string) (content []byte, commit string, err error) {
	at.Path = path
	return c.ReadJSON(ctx, at, maxConfig)
}

func isMissing(err error) bool {
	_, ok := errors.AsType[*hub.NotFoundError](err)
	return ok
}

// isRepo reports whether a text is a repository's ID that needs no escaping in a URL.
func isRepo(repo string) bool {
	org, name, ok := strings.Cut(repo, "/")
	return ok && isName(org) && isName(name)
}

func isName(text string) bool {
	const plain = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return text != "" && len(text) <= 128 && strings.Trim(text, plain+"._-") == "" && strings.ContainsAny(text[:1], plain)
}

// errNotAnID is returned if a text is not a repository's ID.
var errNotAnID = errors.New("not a model id: give ORG/NAME")
