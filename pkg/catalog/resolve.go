// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/model"
)

// Model returns the model with a preset's name, an alias or a hub ID. It ignores case. For an artifact's repository or
// its basename, it returns the model with only that repository's weights.
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

// ResolveModel works like Model. For an unknown name, it returns an *UnknownError with suggestions.
func (c *Catalog) ResolveModel(name string) (model.Model, error) {
	if m, ok := c.Model(name); ok {
		return m, nil
	}
	return model.Model{}, &UnknownError{Kind: KindPreset, Name: name, Suggestions: c.similarModels(name)}
}

// repoOf is a repository with the name of its model.
type repoOf struct {
	name, model string
	sibling     bool
}

// viewOf returns a model with only the weights of one repository. A user who names the repository consents to its
// precision, so all of its artifacts count as released.
func viewOf(m model.Model, repo string) model.Model {
	m = m.Clone()
	m.HubID, m.Name, m.Aliases = repo, baseName(repo), nil
	m.Artifacts = slices.DeleteFunc(m.Artifacts, func(a model.Artifact) bool {
		return a.Repo != repo && !slices.Contains(a.Siblings, repo)
	})
	for i := range m.Artifacts {
		a := &m.Artifacts[i]
		if a.Repo != repo {
			a.Repo, a.Revision = repo, mainRevision
		}
		a.Native, a.Siblings = true, nil
	}
	return m
}

// mainRevision is the default branch of repositories.
const mainRevision = "main"

// indexRepos indexes models by their artifacts' repositories. Two models cannot have one repository, unless it is the
// hub ID of one of them.
func (m *merger) indexRepos(c *Catalog) error {
	owners := map[string]repoOf{}
	for _, o := range m.models.sorted() {
		for i, a := range o.entry.Artifacts {
			for n, repo := range append([]string{a.Repo}, a.Siblings...) {
				key := strings.ToLower(repo)
				of, taken := c.models[key]
				if other, claimed := owners[key]; !taken && claimed {
					of, taken = c.models[other.model], true
				}
				if taken && (of.Name != o.entry.Name || n > 0) {
					return fmt.Errorf("catalogue file %q: model %q: artifacts[%d].%s: repository %q already belongs to %q",
						o.file, o.entry.Name, i, repoField(n), repo, of.Name)
				}
				owners[key] = repoOf{name: repo, model: o.entry.Name, sibling: n > 0}
			}
		}
	}
	c.repos = withBaseNames(owners, c.models)
	return nil
}

// repoField returns the name of an artifact's nth repository field: repo, and then its siblings.
func repoField(n int) string {
	if n == 0 {
		return "repo"
	}
	return fmt.Sprintf("siblings[%d]", n-1)
}

// withBaseNames adds unambiguous basenames of repositories.
func withBaseNames(repos map[string]repoOf, models map[string]model.Model) map[string]repoOf {
	out := map[string]repoOf{}
	ambiguous := map[string]bool{}
	for _, key := range sortedKeys(repos) {
		base := baseName(key)
		other, taken := out[base]
		if taken && other.model == repos[key].model && (other.sibling || repos[key].sibling) {
			// Siblings are copies of a repository under another owner. The original counts.
			if other.sibling && !repos[key].sibling {
				out[base] = repos[key]
			}
			continue
		}
		if taken || ambiguous[base] {
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

// similarModels suggests names for an unknown name: names, aliases and repositories' basenames.
func (c *Catalog) similarModels(name string) []string {
	var names []string
	for _, m := range c.sortedModels {
		names = append(append(names, m.Name), m.Aliases...)
		for _, a := range m.Artifacts {
			for _, repo := range append([]string{a.Repo}, a.Siblings...) {
				names = append(names, baseName(repo))
			}
		}
	}
	return closest(baseName(name), names)
}
