// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"net/http"
	"strings"

	"github.com/modelberth/modelberth/pkg/router/openai"
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
		return x.unchecked(err)
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
		return x.unchecked(err)
	}
	x.client = client
	return nil
}

// unchecked refuses a client as long as the API server does not answer.
func (x *exchange) unchecked(err error) *openai.Error {
	x.router.log.Warn("a token could not be checked", "error", err.Error())
	return openai.Errorf(http.StatusServiceUnavailable, openai.CodeUnchecked,
		"the API server does not answer, so the token cannot be checked: try again").After(retryFailed)
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
