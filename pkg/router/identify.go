// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"errors"
	"net/http"
	"strings"

	"github.com/modelberth/modelberth/pkg/router/openai"
	"github.com/modelberth/modelberth/pkg/router/tokens"
)

// identify sets the client: the owner of the key, or the account of the token.
func (x *exchange) identify(req *http.Request) *openai.Error {
	if x.router.settings.IsOpen {
		return nil
	}
	key := keyOf(req.Header)
	if key == "" {
		return openai.Errorf(http.StatusUnauthorized, openai.CodeInvalidKey, "send a key: Authorization: Bearer KEY")
	}
	if client := x.router.keys.Find(key); client != nil {
		x.client, x.user = client, nil
		return nil
	}
	if x.router.tokens == nil {
		return openai.Errorf(http.StatusUnauthorized, openai.CodeInvalidKey, "the key is unknown: ask the administrator for a valid key")
	}
	user, err := x.router.tokens.User(req.Context(), key)
	if err != nil {
		return x.unchecked(req, err)
	}
	if user == nil {
		return openai.Errorf(http.StatusUnauthorized, openai.CodeInvalidKey,
			"the bearer token is neither a known key nor a valid ServiceAccount token for the router's audience: ask the administrator for access")
	}
	x.client, x.user = user.Client(), user
	return nil
}

// see restricts an account with a token to the given namespaces that it may use. A key already has its namespaces.
func (x *exchange) see(req *http.Request, namespaces []string) *openai.Error {
	if x.user == nil {
		return nil
	}
	client, err := x.router.tokens.Within(req.Context(), x.user, namespaces)
	if err != nil {
		return x.unchecked(req, err)
	}
	x.client = client
	return nil
}

// unchecked returns the error for a client whose token cannot be checked now. It logs at most one failure per second,
// so that a flood does not fill the log.
func (x *exchange) unchecked(req *http.Request, err error) *openai.Error {
	why := "the API server does not answer the router"
	switch {
	case errors.Is(err, tokens.ErrBusy):
		why = "too many tokens are waiting for their check"
	case errors.Is(err, tokens.ErrUnfinished):
		why = err.Error()
	}
	if req.Context().Err() == nil { // the client has not gone
		x.router.uncheckedLog.Do(func() { x.router.log.Warn("a token could not be checked", "error", err.Error()) })
	}
	return openai.Errorf(http.StatusServiceUnavailable, openai.CodeUnchecked,
		"%s, so the token cannot be checked: try again", why).After(retryFailed)
}

// keyOf returns the key in OpenAI's header Authorization (scheme Bearer, or KAITO's APIKey) or in Anthropic's
// X-Api-Key. It returns no key if there are several headers, because they would be ambiguous.
func keyOf(header http.Header) string {
	all := append(header.Values("Authorization"), header.Values("X-Api-Key")...)
	if len(all) != 1 {
		return ""
	}
	if len(header.Values("X-Api-Key")) == 1 {
		return all[0]
	}
	scheme, key, ok := strings.Cut(all[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") && !strings.EqualFold(scheme, "APIKey") {
		return ""
	}
	return strings.TrimSpace(key)
}
