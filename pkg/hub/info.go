// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"net/http"

	"github.com/modelberth/modelberth/pkg/jsonstream"
)

// Info is the API's description of a repository.
type Info struct {
	// Commit is the present commit of the revision.
	Commit string
	// Gated is set if users must accept conditions before they can read files.
	Gated bool
	// License is the SPDX ID, or the publisher's own name if the ID is only "other"; empty if the hub gives none.
	License string
}

// Info returns the API's description of a repository, org/name, at a branch, tag or commit. If the answer has no
// commit, the server is not a hub, and the Info is zero. LacksAPI matches the errors of mirrors without an API.
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

// modelInfo holds the fields of the API's answer. A field that is not text is empty.
type modelInfo struct {
	sha string
	// gated is "auto" or "manual"; empty if the answer has false.
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

// readCard reads the publisher's data, which may have any form.
func (i *modelInfo) readCard(d *jsonstream.Decoder) error {
	return d.ObjectIfAny(func(key string) (err error) {
		switch key {
		case "license":
			i.licenseID, err = d.Text() // a list counts as none: its first entry alone could mislead
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

// LacksAPI reports whether an error of Info, Resolve or Tree comes from a server without the API: a mirror that
// serves only files.
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
