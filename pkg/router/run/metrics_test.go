// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/cert"

	"github.com/modelberth/modelberth/pkg/comparison"
	"github.com/modelberth/modelberth/pkg/review"
)

// nothing compares no templates.
func nothing() comparison.Report { return comparison.Report{} }

// reviews returns reviews that accept the token "good" for the API server, and "comparer" for comparisons. They grant only
// the rights to get /metrics and the comparisons.
func reviews(t *testing.T) *review.Reviews {
	t.Helper()
	c := &fake.Clientset{}
	c.AddReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		creation, ok := action.(clienttesting.CreateAction)
		if !ok {
			return true, nil, errors.New("no creation")
		}
		object := creation.GetObject()
		switch asked := object.(type) {
		case *authenticationv1.TokenReview:
			isMeant := slices.Contains(asked.Spec.Audiences, comparison.Audience)
			asked.Status.Authenticated = asked.Spec.Token == "good" && !isMeant || asked.Spec.Token == "comparer" && isMeant
			asked.Status.Audiences = asked.Spec.Audiences
		case *authorizationv1.SubjectAccessReview:
			attributes := asked.Spec.NonResourceAttributes
			asked.Status.Allowed = attributes != nil && slices.Contains([]string{"/metrics", comparison.Path}, attributes.Path) && attributes.Verb == "get"
		}
		return true, object, nil
	})
	return review.With(c.AuthenticationV1().TokenReviews(), c.AuthorizationV1().SubjectAccessReviews())
}

// scrape returns the status of a scrape of the metrics with a token.
func scrape(t *testing.T, o *Options, url, token string) (int, error) {
	t.Helper()
	return fetch(t, o, url, "/metrics", token)
}

// fetch returns the status of a path of the metrics port.
func fetch(t *testing.T, o *Options, url, path, token string) (int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"://"+o.MetricsAddress+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // the router signed it itself
	answer, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

// TestMetricsAreGuarded: a client needs a right to read metrics, because they name the models and keys of all tenants.
func TestMetricsAreGuarded(t *testing.T) {
	directory := t.TempDir()
	certificate, key, err := cert.GenerateSelfSignedCertKey("router.example", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(directory, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for reason, certDir := range map[string]string{"a certificate of its own": "", "a certificate of a Secret": directory} {
		t.Run(reason, func(t *testing.T) {
			o := Options{MetricsAddress: free(t), MetricsCertDir: certDir}
			server, certificate, err := metricsServer(&o, prometheus.NewRegistry(), nothing, reviews(t), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 2)
			go func() { ended <- listen(ctx, server, o.MetricsAddress, 10) }()
			go func() { ended <- certificate(ctx) }()
			until := time.Now().Add(patience)
			status, err := scrape(t, &o, "https", "good")
			for err != nil && time.Now().Before(until) {
				status, err = scrape(t, &o, "https", "good")
			}
			if err != nil || status != http.StatusOK {
				t.Errorf("with a right: %d, %v", status, err)
			}
			for token, want := range map[string]int{"": http.StatusUnauthorized, "bad": http.StatusUnauthorized} {
				if status, err := scrape(t, &o, "https", token); err != nil || status != want {
					t.Errorf("token %q: %d (%v), want %d", token, status, err, want)
				}
			}
			for _, c := range []struct {
				path, token string
				want        int
			}{
				{comparison.Path, "comparer", http.StatusOK},
				{comparison.Path, "good", http.StatusUnauthorized},
				{comparison.Path, "", http.StatusUnauthorized},
				{"/metrics", "comparer", http.StatusUnauthorized},
				{"/", "", http.StatusUnauthorized},
			} {
				if status, err := fetch(t, &o, "https", c.path, c.token); err != nil || status != c.want {
					t.Errorf("%s with token %q: %d (%v), want %d", c.path, c.token, status, err, c.want)
				}
			}
			if status, err := scrape(t, &o, "http", "good"); err == nil && status == http.StatusOK {
				t.Error("the metrics are served in plain text")
			}
			cancel()
			for range 2 {
				if err := <-ended; err != nil {
					t.Errorf("the server ended with %v", err)
				}
			}
		})
	}
}

// TestMetricsWithoutGuard: a router that cannot check clients, or has no certificate, does not start.
func TestMetricsWithoutGuard(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	if _, _, err := metricsServer(&Options{}, prometheus.NewRegistry(), nothing, nil, log); err == nil {
		t.Error("metrics without reviews are served")
	}
	if _, _, err := metricsServer(&Options{MetricsCertDir: t.TempDir()}, prometheus.NewRegistry(), nothing, reviews(t), log); err == nil {
		t.Error("no error without tls.crt and tls.key")
	}
}
