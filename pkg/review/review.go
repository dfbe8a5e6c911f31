// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package review asks the API server for the user of a token and for this user's rights. Guard admits HTTP requests by
// the answers.
//
// It decides the status of a refused request. It must not know what is behind the guard.
package review

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// deadline limits the wait for the API server. By default, Prometheus waits 10 s for an answer.
const deadline = 10 * time.Second

// ErrBusy means that too many reviews are waiting: another one would not start within the deadline. No request went to
// the API server.
var ErrBusy = errors.New("too many reviews are waiting")

// limiter marks the errors of a rate limit with ErrBusy.
type limiter struct{ flowcontrol.RateLimiter }

// Wait implements flowcontrol.RateLimiter.
func (l limiter) Wait(ctx context.Context) error {
	err := l.RateLimiter.Wait(ctx)
	if err == nil || ctx.Err() != nil { // the caller left
		return err
	}
	return fmt.Errorf("%w: %w", ErrBusy, err)
}

// Reviews has the clients of the two APIs.
type Reviews struct {
	tokens authentication.TokenReviewInterface
	access authorization.SubjectAccessReviewInterface
}

// New returns Reviews with a separate rate limit. A flood of invented tokens then slows down neither the API server nor
// the rest of the process. httpClient may be nil.
func New(config *rest.Config, httpClient *http.Client, perSecond float32, burst int) (*Reviews, error) {
	limited := func() *rest.Config { // each of the two APIs has its own limit
		out := rest.CopyConfig(config)
		out.RateLimiter = limiter{flowcontrol.NewTokenBucketRateLimiter(perSecond, burst)}
		return out
	}
	if httpClient == nil {
		var err error
		if httpClient, err = rest.HTTPClientFor(config); err != nil {
			return nil, fmt.Errorf("creating the client for reviews: %w", err)
		}
	}
	tokens, err := authentication.NewForConfigAndClient(limited(), httpClient)
	if err != nil {
		return nil, fmt.Errorf("creating the client for TokenReviews: %w", err)
	}
	access, err := authorization.NewForConfigAndClient(limited(), httpClient)
	if err != nil {
		return nil, fmt.Errorf("creating the client for SubjectAccessReviews: %w", err)
	}
	return With(tokens.TokenReviews(), access.SubjectAccessReviews()), nil
}

// ForScrapes returns Reviews for clients of the metrics port. A scrape takes two reviews. A flood of invented tokens
// causes no more requests to the API server than the limits here.
func ForScrapes(config *rest.Config, httpClient *http.Client) (*Reviews, error) {
	const perSecond, burst = 10, 20
	return New(config, httpClient, perSecond, burst)
}

// With returns Reviews that use the caller's clients.
func With(tokens authentication.TokenReviewInterface, access authorization.SubjectAccessReviewInterface) *Reviews {
	return &Reviews{tokens, access}
}

// User returns the user of a token, or nil if the API server accepts the token for none of the audiences. Without
// audiences, the token must be for the API server.
func (r *Reviews) User(ctx context.Context, token string, audiences ...string) (*authenticationv1.UserInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	who, err := r.tokens.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("reviewing a token: %w", err)
	}
	if !who.Status.Authenticated {
		return nil, nil //nolint:nilnil // no user, and no failure
	}
	// An authenticator that ignores audiences returns none. The token is then for the API server.
	isMeant := func(audience string) bool { return slices.Contains(who.Status.Audiences, audience) }
	if len(audiences) > 0 && !slices.ContainsFunc(audiences, isMeant) {
		return nil, nil //nolint:nilnil // as above
	}
	return &who.Status.User, nil
}

// MayUse reports whether a user may apply a verb to a resource in a namespace.
func (r *Reviews) MayUse(ctx context.Context, user *authenticationv1.UserInfo, what authorizationv1.ResourceAttributes) (bool, error) {
	spec := specOf(user)
	spec.ResourceAttributes = &what
	return r.allows(ctx, spec)
}

func (r *Reviews) allows(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	may, err := r.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("reviewing the access of %s: %w", spec.User, err)
	}
	return may.Status.Allowed, nil
}

// specOf returns a spec with all attributes of a user.
func specOf(user *authenticationv1.UserInfo) authorizationv1.SubjectAccessReviewSpec {
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	return authorizationv1.SubjectAccessReviewSpec{User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra}
}

// Guard admits a request if the user of its bearer token may send it, as the API server does for its own /metrics.
// controller-runtime's filters.WithAuthenticationAndAuthorization does the same, but links CEL, gRPC and OpenTelemetry:
// the program would grow by half, and its memory by 20 MB. It also answers an invalid token with 500, and logs an error
// each time. Guard calls failed with the error of a review that got no answer.
//
// With audiences, it admits only tokens for one of them.
func (r *Reviews) Guard(next http.Handler, failed func(error), audiences ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		status, err := r.review(req.Context(), req, audiences)
		if err != nil && req.Context().Err() == nil { // the client is still there
			failed(err)
		}
		if status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// review returns the status for a request.
func (r *Reviews) review(ctx context.Context, req *http.Request, audiences []string) (int, error) {
	scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); token == "" || !strings.EqualFold(scheme, "Bearer") {
		return http.StatusUnauthorized, nil
	}
	user, err := r.User(ctx, token, audiences...)
	if err != nil {
		return http.StatusServiceUnavailable, err
	}
	if user == nil {
		return http.StatusUnauthorized, nil
	}
	may, err := r.allows(ctx, requestSpec(user, req))
	if err != nil {
		return http.StatusServiceUnavailable, err
	}
	if !may {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

// requestSpec returns the spec of the review whether a user may send a request.
func requestSpec(user *authenticationv1.UserInfo, req *http.Request) authorizationv1.SubjectAccessReviewSpec {
	out := specOf(user)
	out.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: req.URL.Path, Verb: strings.ToLower(req.Method)}
	return out
}
