// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"errors"
	"fmt"
	"time"

	"github.com/modelberth/modelberth/pkg/hub"
	"github.com/modelberth/modelberth/pkg/model/hfconfig"
)

// Error explains in one sentence why a repository's model is unknown, with the remedy. The wrapped error
// distinguishes the cases: *hub.NotFoundError, *hub.UnauthorizedError, *hub.UnreachableError, *hub.MalformedError,
// *hub.TooLargeError, *hfconfig.FieldError, *hfconfig.UnsupportedError.
type Error struct {
	Endpoint, Repo, Revision string
	// License of a gated repository, if known.
	License string
	Err     error
}

func (e *Error) Unwrap() error { return e.Err }

// wayOut is the remedy: how to plan for a model without the hub.
const wayOut = "pass the model's config.json with --config FILE on the command line, or describe the model in a catalogue overlay in a cluster"

func (e *Error) Error() string {
	if missing, ok := errors.AsType[*hub.NotFoundError](e.Err); ok {
		return e.missing(missing)
	}
	if refused, ok := errors.AsType[*hub.UnauthorizedError](e.Err); ok {
		return e.refused(refused)
	}
	if after, ok := hub.Again(e.Err); ok {
		again := "try again"
		if after > 0 {
			again = fmt.Sprintf("try again in %s", after.Round(time.Second))
		}
		return fmt.Sprintf("%v: %s, or %s", e.Err, again, wayOut)
	}
	if _, ok := errors.AsType[*hub.TooLargeError](e.Err); ok {
		return fmt.Sprintf("%v: %s", e.Err, wayOut)
	}
	if errors.Is(e.Err, errNotAnID) {
		return fmt.Sprintf("model %q: %v", e.Repo, e.Err)
	}
	if _, ok := errors.AsType[*hfconfig.UnsupportedError](e.Err); ok {
		return fmt.Sprintf("model %q: %v", e.Repo, e.Err)
	}
	if _, ok := errors.AsType[*hfconfig.FieldError](e.Err); ok {
		return fmt.Sprintf("model %q: %v: correct the file, then %s", e.Repo, e.Err, wayOut)
	}
	return fmt.Sprintf("model %q: %v", e.Repo, e.Err)
}

func (e *Error) missing(missing *hub.NotFoundError) string {
	switch {
	case missing.Missing == "revision":
		return fmt.Sprintf("model %q: %s has no revision %q of this model: check the branch, tag or commit", e.Repo, e.Endpoint, e.Revision)
	case missing.File.Path == "config.json" && missing.Missing == "file":
		return fmt.Sprintf("model %q: it has no config.json at revision %q, so its weights are unknown: name the repository with the original weights, or %s",
			e.Repo, e.Revision, wayOut)
	}
	return fmt.Sprintf("model %q: %s has no such model: check the spelling, or %s", e.Repo, e.Endpoint, wayOut)
}

func (e *Error) refused(refused *hub.UnauthorizedError) string {
	page := e.Endpoint + "/" + e.Repo
	conditions := "its conditions"
	if e.License != "" {
		conditions = fmt.Sprintf("its licence (%s)", e.License)
	}
	const where = "HF_TOKEN, or in a cluster the Secret in modelAccessSecret"
	switch {
	case refused.Gated && refused.TokenSent:
		return fmt.Sprintf("model %q is gated, but the given token's account has not accepted %s: accept at %s, give another account's token (%s), or %s",
			e.Repo, conditions, page, where, wayOut)
	case refused.Gated:
		return fmt.Sprintf("model %q is gated: accept %s at %s and give your account's token (%s), or %s", e.Repo, conditions, page, where, wayOut)
	case refused.TokenSent:
		return fmt.Sprintf("model %q does not exist on %s, or the given token gives no access to it: check the spelling and the token (%s), or %s",
			e.Repo, e.Endpoint, where, wayOut)
	}
	return fmt.Sprintf("model %q does not exist on %s, or is private: check the spelling, give a token (%s), or %s",
		e.Repo, e.Endpoint, where, wayOut)
}
