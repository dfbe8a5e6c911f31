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

// identify finds the client of the key, or the account of the token.
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
		return openai.Errorf(http.StatusUnauthorized, openai.CodeInvalidKey, "the key is unknown: ask the administrator for one")
	}
	user, err := x.router.tokens.User(req.Context(), key)
	if err != nil {
		return x.unchecked(req, err)
	}
	if user == nil {
		return openai.Errorf(http.StatusUnauthorized, openai.CodeInvalidKey,
			"this is neither a key nor a valid token of the router's audience: ask the administrator for either")
	}
	x.client, x.user = user.Client(), user
	return nil
}

// see asks which of the namespaces the account of a token may use. A key names its namespaces itself.
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

// unchecked refuses a client as long as its token cannot be checked. It logs the first failure of each second: a flood
// would fill the log.
func (x *exchange) unchecked(req *http.Request, err error) *openai.Error {
	why := "the API server does not answer"
	switch {
	case errors.Is(err, tokens.ErrBusy):
		why = "too many tokens are waiting for a check"
	case errors.Is(err, tokens.ErrUnfinished):
		why = err.Error()
	}
	if req.Context().Err() == nil { // the client is still there
		x.router.uncheckedLog.Do(func() { x.router.log.Warn("a token could not be checked", "error", err.Error()) })
	}
	return openai.Errorf(http.StatusServiceUnavailable, openai.CodeUnchecked,
		"%s, so the token cannot be checked: try again", why).After(retryFailed)
}

// keyOf reads OpenAI's header, with KAITO's scheme APIKey too, or Anthropic's. Several of them would be ambiguous.
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
