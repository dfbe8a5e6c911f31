// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelberth/modelberth/pkg/hub"
)

// adapterConfig is PEFT's file with the description of an adapter.
const adapterConfig = "adapter_config.json"

// AdapterRank returns the rank of the LoRA adapter in a repository, org/name, at a branch, tag or commit. An empty
// revision means main.
func AdapterRank(ctx context.Context, c *hub.Client, repo, revision string) (int, error) {
	if revision == "" {
		revision = "main"
	}
	rank, err := adapterRank(ctx, c, hub.File{Repo: repo, Revision: revision})
	if err != nil {
		return 0, fmt.Errorf("adapter %q at %s: %w", repo, c.Endpoint(), err)
	}
	return rank, nil
}

func adapterRank(ctx context.Context, c *hub.Client, at hub.File) (int, error) {
	if !isRepo(at.Repo) {
		return 0, errNotAnID
	}
	content, _, err := readConfig(ctx, c, at, adapterConfig)
	if err != nil {
		return 0, err
	}
	var config struct {
		Type string `json:"peft_type"`
		Rank int    `json:"r"`
	}
	if err := json.Unmarshal(content, &config); err != nil {
		return 0, fmt.Errorf("reading %s: %w", adapterConfig, err)
	}
	switch {
	case config.Type != "" && config.Type != "LORA":
		return 0, fmt.Errorf("%s has peft_type %q: only LORA can be served with a model", adapterConfig, config.Type)
	case config.Rank < 1:
		return 0, errors.New(adapterConfig + " has no rank (r): it is not a low-rank adapter")
	}
	return config.Rank, nil
}

// AdapterRanks returns the ranks of the adapters in repositories, each ORG/NAME or ORG/NAME@REVISION. It skips
// repositories that the hub does not return to this client, because the pod that fetches them may have access. Its
// errors are permanent.
func AdapterRanks(ctx context.Context, c *hub.Client, repositories []string) ([]int, error) {
	var ranks []int
	for _, repository := range repositories {
		repo, revision, _ := strings.Cut(repository, "@")
		rank, err := AdapterRank(ctx, c, repo, revision)
		switch {
		case err == nil:
			ranks = append(ranks, rank)
		case !isUnanswered(err):
			return nil, err
		}
	}
	return ranks, nil
}

func isUnanswered(err error) bool {
	_, away := hub.Again(err)
	_, refused := errors.AsType[*hub.UnauthorizedError](err)
	return away || refused || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
