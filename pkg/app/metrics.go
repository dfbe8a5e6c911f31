// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/modelberth/modelberth/pkg/options"
)

const (
	// reviewDeadline bounds a scrape's wait for the API server. Prometheus gives up after 10 s by default.
	reviewDeadline = 10 * time.Second
	// A scrape takes two reviews. Whoever floods the endpoint with invented tokens sends the API server no more than this.
	reviewsPerSecond, reviewBurst = 10, 20
)

// metricsOptions serve metrics over TLS to users with the right to get /metrics.
func metricsOptions(o options.Metrics) (metricsserver.Options, error) {
	out := metricsserver.Options{BindAddress: o.Address}
	if o.Insecure {
		return out, nil
	}
	if o.CertDir != "" { // of which the server would sign one itself if a file were missing
		_, err := tls.LoadX509KeyPair(filepath.Join(o.CertDir, "tls.crt"), filepath.Join(o.CertDir, "tls.key"))
		if err != nil {
			return out, fmt.Errorf("reading the certificate for metrics in %s: %w", o.CertDir, err)
		}
	}
	out.SecureServing, out.CertDir, out.FilterProvider = true, o.CertDir, newMetricsFilter
	out.TLSOpts = []func(*tls.Config){func(config *tls.Config) {
		config.MinVersion = tls.VersionTLS12
		// Not HTTP/2: there, one connection can open and reset streams without end (CVE-2023-44487).
		config.NextProtos = []string{"http/1.1"}
	}}
	return out, nil
}

// metricsFilter admits a request if its bearer token belongs to a user with the right to send it, like the API
// server's own /metrics. controller-runtime's filters.WithAuthenticationAndAuthorization does the same, but links
// CEL, gRPC and OpenTelemetry: the program grows by half, and its memory by 20 MB. It also answers an invalid token
// with 500, and logs an error each time.
type metricsFilter struct {
	tokens authentication.TokenReviewInterface
	access authorization.SubjectAccessReviewInterface
}

// newMetricsFilter has a rate limit of its own: scrapes do not slow down the controllers.
func newMetricsFilter(config *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.RateLimiter = reviewsPerSecond, reviewBurst, nil
	tokens, err := authentication.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("creating the client for TokenReviews: %w", err)
	}
	access, err := authorization.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("creating the client for SubjectAccessReviews: %w", err)
	}
	return metricsFilter{tokens.TokenReviews(), access.SubjectAccessReviews()}.wrap, nil
}

// wrap implements metricsserver.Filter.
func (f metricsFilter) wrap(log logr.Logger, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), reviewDeadline)
		defer cancel()
		status, err := f.review(ctx, r)
		if err != nil && r.Context().Err() == nil { // the client is still there
			log.Error(err, "cannot check the access to metrics")
		}
		if status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		next.ServeHTTP(w, r)
	}), nil
}

// review returns the status to answer a request with.
func (f metricsFilter) review(ctx context.Context, r *http.Request) (int, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); token == "" || !strings.EqualFold(scheme, "Bearer") {
		return http.StatusUnauthorized, nil
	}
	who, err := f.tokens.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return http.StatusServiceUnavailable, fmt.Errorf("reviewing a token: %w", err)
	}
	if !who.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	may, err := f.access.Create(ctx, accessReview(who.Status.User, r), metav1.CreateOptions{})
	if err != nil {
		return http.StatusServiceUnavailable, fmt.Errorf("reviewing the access of %s: %w", who.Status.User.Username, err)
	}
	if !may.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

// accessReview asks whether a user may send a request.
func accessReview(user authenticationv1.UserInfo, r *http.Request) *authorizationv1.SubjectAccessReview {
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	return &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: strings.ToLower(r.Method)},
	}}
}
