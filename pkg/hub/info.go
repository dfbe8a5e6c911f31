// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
)

// Info is what the hub's API says of a repository.
type Info struct {
	// Commit is the commit that the revision names right now.
	Commit string
	// Gated is set where conditions have to be accepted before files can be read.
	Gated bool
	// License is the SPDX id, or the publisher's own name where the id says no more than other; empty where
	// the hub does not say.
	License string
}

// Info returns what the API says of a repository, org/name, at a branch, tag or commit. An answer that
// names no commit is no hub's, and gives the zero Info; LacksAPI knows the errors of mirrors without an API.
func (c *Client) Info(ctx context.Context, repo, revision string) (Info, error) {
	f := File{Repo: repo, Revision: revision}
	var answer modelInfo
	if _, err := c.getJSON(ctx, f, c.modelURL(f, "revision"), &answer); err != nil {
		return Info{}, err
	}
	if !IsCommit(answer.SHA) {
		return Info{}, nil
	}
	return Info{Commit: answer.SHA, Gated: answer.isGated(), License: answer.license()}, nil
}

// modelInfo is an answer of the API.
type modelInfo struct {
	SHA string `json:"sha"`
	// Gated is false, "auto" or "manual".
	Gated json.RawMessage `json:"gated"`
	Card  struct {
		License     json.RawMessage `json:"license"`
		LicenseName json.RawMessage `json:"license_name"`
	} `json:"cardData"`
}

func (i modelInfo) isGated() bool {
	var how string
	return json.Unmarshal(i.Gated, &how) == nil && how != ""
}

func (i modelInfo) license() string {
	var id, name string
	_ = json.Unmarshal(i.Card.License, &id) // the first of a list is no better than none
	_ = json.Unmarshal(i.Card.LicenseName, &name)
	if id == "other" && name != "" {
		id = name
	}
	return clean(id)
}

// LacksAPI says whether an error of Info, Resolve or Tree means that somebody is there who does not know
// the API: a mirror that serves files only.
func LacksAPI(err error) bool {
	if missing, ok := errors.AsType[*NotFoundError](err); ok {
		return missing.Missing == "resource"
	}
	refused, ok := errors.AsType[*UnreachableError](err)
	if !ok {
		return false
	}
	return refused.Status == http.StatusMethodNotAllowed || refused.Status == http.StatusNotImplemented || errors.Is(err, errNotJSON)
}
