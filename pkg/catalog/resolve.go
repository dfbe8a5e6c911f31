// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/model"
)

// Model returns the model that a preset's name, an alias or a hub id stands for, in any case. The
// repository of an artifact, or its basename, stands for the model in that form alone.
func (c *Catalog) Model(name string) (model.Model, bool) {
	key := strings.ToLower(name)
	if m, ok := c.models[key]; ok {
		return m.Clone(), true
	}
	repo, ok := c.repos[key]
	if !ok {
		return model.Model{}, false
	}
	return viewOf(c.models[repo.model], repo.name), true
}

// ResolveModel is Model with an *UnknownError that a person can act on.
func (c *Catalog) ResolveModel(name string) (model.Model, error) {
	if m, ok := c.Model(name); ok {
		return m, nil
	}
	return model.Model{}, &UnknownError{Kind: KindPreset, Name: name, Suggestions: c.similarModels(name)}
}

// repoOf is a repository and the name of the model whose weights it holds.
type repoOf struct{ name, model string }

// viewOf is a model as one of its repositories has it. Naming the repository is consent to its
// precision, so all of its artifacts count as released ones.
func viewOf(m model.Model, repo string) model.Model {
	m = m.Clone()
	m.HubID, m.Name, m.Aliases = repo, baseName(repo), nil
	m.Artifacts = slices.DeleteFunc(m.Artifacts, func(a model.Artifact) bool { return a.Repo != repo })
	for i := range m.Artifacts {
		m.Artifacts[i].Native = true
	}
	return m
}

// indexRepos indexes models by their artifacts' repositories. Two models cannot have one repository,
// unless it is the hub id of one of them.
func (m *merger) indexRepos(c *Catalog) error {
	owners := map[string]repoOf{}
	for _, o := range m.models.sorted() {
		for i, a := range o.entry.Artifacts {
			key := strings.ToLower(a.Repo)
			of, taken := c.models[key]
			if other, claimed := owners[key]; !taken && claimed {
				of, taken = c.models[other.model], true
			}
			if taken && of.Name != o.entry.Name {
				return fmt.Errorf("catalogue file %q: model %q: artifacts[%d].repo: %q is a repository of %q already",
					o.file, o.entry.Name, i, a.Repo, of.Name)
			}
			owners[key] = repoOf{name: a.Repo, model: o.entry.Name}
		}
	}
	c.repos = withBaseNames(owners, c.models)
	return nil
}

// withBaseNames adds the basenames that mean one repository and no model.
func withBaseNames(repos map[string]repoOf, models map[string]model.Model) map[string]repoOf {
	out := map[string]repoOf{}
	ambiguous := map[string]bool{}
	for _, key := range sortedKeys(repos) {
		base := baseName(key)
		if _, taken := out[base]; taken || ambiguous[base] {
			delete(out, base)
			ambiguous[base] = true
			continue
		}
		if _, taken := models[base]; !taken {
			out[base] = repos[key]
		}
	}
	for key, of := range repos {
		if _, taken := models[key]; !taken {
			out[key] = of
		}
	}
	return out
}

// similarModels suggests names for one that is unknown: names, aliases and repositories' basenames.
func (c *Catalog) similarModels(name string) []string {
	var names []string
	for _, m := range c.sortedModels {
		names = append(append(names, m.Name), m.Aliases...)
		for _, a := range m.Artifacts {
			names = append(names, baseName(a.Repo))
		}
	}
	return closest(baseName(name), names)
}
