// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/router/hold"
	"github.com/modelberth/modelberth/pkg/router/limit"
	"github.com/modelberth/modelberth/pkg/router/models"
	"github.com/modelberth/modelberth/pkg/router/tokens"
)

// accounts is an API server. Each account may use the namespace with its own name.
type accounts struct{ isDown, isBusy bool }

func (a accounts) User(_ context.Context, token string, _ ...string) (*authenticationv1.UserInfo, error) {
	name, isValid := strings.CutPrefix(token[strings.LastIndexByte(token, '.'):], ".signature-of-")
	switch {
	case a.isDown:
		return nil, errors.New("the API server is away")
	case a.isBusy:
		return nil, fmt.Errorf("waiting: %w", tokens.ErrBusy)
	case !isValid:
		return nil, nil //nolint:nilnil // nobody
	}
	return &authenticationv1.UserInfo{Username: "system:serviceaccount:" + name + ":app", UID: name}, nil
}

func (a accounts) MayUse(_ context.Context, user *authenticationv1.UserInfo, what authorizationv1.ResourceAttributes) (bool, error) {
	return user.UID == what.Namespace && what.Verb == "use", nil
}

func (a accounts) reviewers() tokens.Reviewers {
	return tokens.Reviewers{New: a, Renewals: a, Rights: a}
}

func tokenOf(signature string) string { return tokenUntil(time.Now().Add(time.Hour), signature) }

func tokenUntil(expires time.Time, signature string) string {
	payload := fmt.Sprintf(`{"sub":"system:serviceaccount:a:app","aud":["router"],"exp":%d}`, expires.Unix())
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256"}`)) + "." + encode([]byte(payload)) + "." + signature
}

// TestTokens: an account can use the models of its allowed namespaces, and the engine never gets its token.
func TestTokens(t *testing.T) {
	sent := make(chan http.Header, 10)
	up := engine(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		sent <- req.Header
		fmt.Fprint(w, "{}")
	})
	server, _ := front(t, Defaults(), []limit.Key{key(t, map[string]string{"key": secretA, "namespaces": "b"})},
		owner("a", "up", up), owner("b", "theirs", up))
	r, ok := server.Config.Handler.(*Router)
	if !ok {
		t.Fatalf("the server's handler is a %T", server.Config.Handler)
	}
	var logged bytes.Buffer
	r.log, r.uncheckedLog = slog.New(slog.NewTextHandler(&logged, nil)), rate.Sometimes{Interval: time.Hour}
	const chat = "/v1/chat/completions"
	cases := []struct {
		reason, token, body string
		api                 accounts
		status              int
		code                string
	}{
		{"a model of a namespace that the account may use", tokenOf("signature-of-a"), `{"model":"up"}`, accounts{}, 200, ""},
		{"its full name", tokenOf("signature-of-a"), `{"model":"a:up"}`, accounts{}, 200, ""},
		{"a model of another namespace looks like none", tokenOf("signature-of-a"), `{"model":"theirs"}`, accounts{}, 404, "model_not_found"},
		{"a token that nobody signed", tokenOf("forged"), `{"model":"up"}`, accounts{}, 401, "invalid_api_key"},
		{"a key that is no token", "sk-unknown-0123456789", `{"model":"up"}`, accounts{}, 401, "invalid_api_key"},
		{"a key, beside tokens", secretA, `{"model":"theirs"}`, accounts{}, 200, ""},
		{"an API server that is away admits nobody", tokenOf("signature-of-a"), `{"model":"up"}`, accounts{isDown: true}, 503, "authentication_unavailable"},
		{"a flood of tokens that nobody signed", tokenOf("signature-of-a"), `{"model":"up"}`, accounts{isBusy: true}, 503, "authentication_unavailable"},
		{"it does not keep keys out", secretA, `{"model":"theirs"}`, accounts{isDown: true}, 200, ""},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			r.tokens = tokens.New(tokens.Settings{Audience: "router"}, c.api.reviewers(), 1, clock.RealClock{})
			status, body, _ := post(t, server.URL+chat, c.body, "Authorization", "Bearer "+c.token)
			if status != c.status || codeOf(body) != c.code {
				t.Errorf("the answer is %d %s, want %d with code %q", status, body, c.status, c.code)
			}
			if isBusy := strings.Contains(body, "too many tokens are waiting for their check"); isBusy != c.api.isBusy {
				t.Errorf("the answer is %s, and the API server's limit is reached: %v", body, c.api.isBusy)
			}
			if status == http.StatusOK {
				if header := <-sent; header.Get("Authorization") != "" {
					t.Error("the engine gets the token")
				}
			}
		})
	}
	r.tokens = tokens.New(tokens.Settings{Audience: "router"}, accounts{}.reviewers(), 1, clock.RealClock{})
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/v1/models", http.NoBody)
	req.Header.Set("Authorization", "Bearer "+tokenOf("signature-of-a"))
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if body, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(body), `"id":"up"`) || strings.Contains(string(body), "theirs") {
		t.Errorf("the account lists %s (%v)", body, err)
	}
	server.Close() // waits until all requests are counted
	if n := strings.Count(logged.String(), "a token could not be checked"); n != 1 {
		t.Errorf("%d of 2 failed checks are logged, want the first:\n%s", n, logged.String())
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.metrics.requests)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, metric := range families[0].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "key" {
				counted[label.GetValue()] += metric.GetCounter().GetValue()
			}
		}
	}
	want := map[string]float64{"": 4, "tenant-a": 2, "system:serviceaccounts:a": 4}
	if diff := cmp.Diff(want, counted); diff != "" {
		t.Errorf("requests by key (-want +got):\n%s", diff)
	}
}

// TestListOfManyNamespaces: the answer is a complete list, or an error with a time to wait. Each try reviews more
// namespaces.
func TestListOfManyNamespaces(t *testing.T) {
	owners := []models.Owner{owner("z", "own")}
	for i := range 100 {
		owners = append(owners, owner(fmt.Sprintf("n%03d", i), "theirs"))
	}
	server, _ := front(t, Defaults(), nil, owners...)
	r, ok := server.Config.Handler.(*Router)
	if !ok {
		t.Fatalf("the server's handler is a %T", server.Config.Handler)
	}
	r.tokens = tokens.New(tokens.Settings{Audience: "router"}, accounts{}.reviewers(), 1, clock.RealClock{})
	list := func() string {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/models", http.NoBody)
		req.Header.Set("Authorization", "Bearer "+tokenOf("signature-of-z"))
		got := httptest.NewRecorder()
		r.ServeHTTP(got, req)
		isUnfinished := strings.Contains(got.Body.String(), "the account's rights in more than 50 namespaces are not reviewed yet")
		return fmt.Sprintf("%d %q retry %q %t %d", got.Code, codeOf(got.Body.String()), got.Header().Get("Retry-After"), isUnfinished,
			strings.Count(got.Body.String(), `"id"`))
	}
	const unfinished = `503 "authentication_unavailable" retry "2" true 0`
	want := []string{unfinished, unfinished, `200 "" retry "" false 1`}
	if diff := cmp.Diff(want, []string{list(), list(), list()}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTokenExpiresDuringAWait: a waiting request ends when its token expires. A request that reached a replica before
// gets its answer.
func TestTokenExpiresDuringAWait(t *testing.T) {
	limits := hold.Limits{Requests: 2, Bytes: 1 << 20, Time: 5 * time.Minute}
	cases := []struct {
		reason   string
		isStream bool
		// starts is when a replica becomes ready. lasts is how long the engine works.
		starts, lasts time.Duration
		status        int
		code          string
		took          time.Duration
	}{
		{"no replica comes before the end", false, time.Hour, 0, 401, "invalid_api_key", 45 * time.Second},
		{"a stream has its headers already", true, time.Hour, 0, 200, "invalid_api_key", 45 * time.Second},
		{"a replica comes just after the end", false, 41 * time.Second, 0, 401, "invalid_api_key", 41 * time.Second},
		{"a replica comes before the end", false, 35 * time.Second, 0, 200, "", 35 * time.Second},
		{"the answer takes longer than the token lasts", false, 35 * time.Second, time.Minute, 200, "", 95 * time.Second},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHolding(t, limits, func(*holding, *models.Owner) {}, func(req *http.Request) (*http.Response, error) {
					time.Sleep(c.lasts) // on the fake clock
					return says(req), nil
				})
				h.settings.IsOpen = false
				h.tokens = tokens.New(tokens.Settings{Audience: "router"}, accounts{}.reviewers(), 1, clock.RealClock{})
				h.is(set("m", 0))
				change := time.AfterFunc(c.starts, func() { h.is(set("m", 1)) })
				defer change.Stop()
				start := time.Now()
				req, got := newStream(t, fmt.Sprintf(`{"model":"m","stream":%t,"prompt":"a"}`, c.isStream))
				req.Header.Set("Authorization", "Bearer "+tokenUntil(start.Add(40*time.Second), "signature-of-a"))
				serve(h, got, req)
				if got.Code != c.status || time.Since(start) != c.took || strings.Contains(got.Body.String(), "invalid_api_key") != (c.code != "") {
					t.Errorf("the answer is %d %s after %s, want %d with code %q after %s", got.Code, got.Body, time.Since(start), c.status, c.code, c.took)
				}
			})
		})
	}
}
