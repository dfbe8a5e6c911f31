// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/router/tokens"
)

// apiServer accepts the tokens with the right signature, and counts the others.
type apiServer struct {
	mu     sync.Mutex
	forged int
}

const signed, unsigned = "c2lnbmVk", "Zm9yZ2Vk"

func (a *apiServer) RoundTrip(req *http.Request) (*http.Response, error) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		return nil, err
	}
	review.Status.Authenticated = strings.HasSuffix(review.Spec.Token, "."+signed)
	review.Status.Audiences, review.Status.User.Username = review.Spec.Audiences, "system:serviceaccount:a:app"
	if !review.Status.Authenticated {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.forged++
	}
	text, err := json.Marshal(&review)
	return &http.Response{
		StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)),
	}, err
}

func tokenOf(name, signature string) string {
	payload := fmt.Sprintf(`{"sub":"system:serviceaccount:a:%s","aud":"router","exp":%d}`, name, time.Now().Add(time.Hour).Unix())
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256"}`)) + "." + encode([]byte(payload)) + "." + signature
}

// TestFloodOfForgedTokens: forged tokens wait for 10 s each, and the API server gets no more of them than the limit. An
// account that was accepted before is renewed at once.
func TestFloodOfForgedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{}
		reviewers, err := tokenReviewers(&rest.Config{Host: "http://api.invalid", ContentConfig: rest.ContentConfig{ContentType: "application/json"}, Transport: server})
		if err != nil {
			t.Fatal(err)
		}
		admission := tokens.New(tokens.Settings{Audience: "router"}, reviewers, 1, clock.RealClock{})
		known := tokenOf("app", signed)
		expect := func(reason string) {
			t.Helper()
			start := time.Now()
			if user, err := admission.User(t.Context(), known); err != nil || user == nil || time.Since(start) > 0 {
				t.Errorf("%s: the account gets %v, %v after %s", reason, user, err, time.Since(start))
			}
		}
		expect("before the flood")
		time.Sleep(2 * time.Minute) // on the fake clock
		var flood sync.WaitGroup
		for i := range 2000 {
			forged := tokenOf(fmt.Sprint("app-", i), unsigned)
			flood.Go(func() { _, _ = admission.User(t.Context(), forged) })
		}
		synctest.Wait()
		if user, err := admission.User(t.Context(), tokenOf("new", signed)); !errors.Is(err, tokens.ErrBusy) || user != nil {
			t.Errorf("a new token gets %v, %v, want that the limit is reached", user, err)
		}
		expect("during the flood")
		flood.Wait()
		if most := 100 + 10*50; server.forged > most || server.forged < most/2 {
			t.Errorf("the API server got %d forged tokens, want about %d", server.forged, most)
		}
	})
}
