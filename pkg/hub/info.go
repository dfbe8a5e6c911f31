// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"net/http"

	"github.com/modelberth/modelberth/pkg/jsonstream"
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
	answer, err := c.info(ctx, f)
	if err != nil {
		return Info{}, err
	}
	if !IsCommit(answer.sha) {
		return Info{}, nil
	}
	return Info{Commit: answer.sha, Gated: answer.gated != "", License: answer.license()}, nil
}

// modelInfo is an answer of the API. Whatever is not text is empty here.
type modelInfo struct {
	sha string
	// gated is "auto" or "manual", or the answer says false.
	gated                 string
	licenseID, ownLicense string
}

func (c *Client) info(ctx context.Context, f File) (modelInfo, error) {
	var out modelInfo
	_, err := c.getJSON(ctx, answer{f, c.modelURL(f, "revision"), maxInfo}, func(d *jsonstream.Decoder) error {
		return d.Object(func(key string) (err error) {
			switch key {
			case "sha":
				out.sha, err = d.Text()
			case "gated":
				out.gated, err = d.Text()
			case "cardData":
				err = out.readCard(d)
			default:
				err = d.Skip()
			}
			return err
		})
	})
	return out, err
}

// readCard reads what the publisher says, which can be anything.
func (i *modelInfo) readCard(d *jsonstream.Decoder) error {
	return d.ObjectIfAny(func(key string) (err error) {
		switch key {
		case "license":
			i.licenseID, err = d.Text() // the first of a list is no better than none
		case "license_name":
			i.ownLicense, err = d.Text()
		default:
			err = d.Skip()
		}
		return err
	})
}

func (i modelInfo) license() string {
	if i.licenseID == "other" && i.ownLicense != "" {
		return clean(i.ownLicense)
	}
	return clean(i.licenseID)
}

// LacksAPI says whether an error of Info, Resolve or Tree means that somebody is there who does not know
// the API: a mirror that serves files only.
func LacksAPI(err error) bool {
	if missing, ok := errors.AsType[*NotFoundError](err); ok {
		return missing.Missing == "resource"
	}
	if errors.Is(err, errNotJSON) {
		return true
	}
	refused, ok := errors.AsType[*UnreachableError](err)
	return ok && (refused.Status == http.StatusMethodNotAllowed || refused.Status == http.StatusNotImplemented)
}
