// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/hub"
)

// repositories serves each repository under its own name. All other names serve the intact model org/good.
func repositories(others map[string]http.HandlerFunc) http.HandlerFunc {
	good := repository{apiPath: api, "config.json": config, "model.safetensors.index.json": index}
	return func(w http.ResponseWriter, r *http.Request) {
		for name, serve := range others {
			if strings.Contains(r.URL.Path, name) {
				r.URL.Path = strings.Replace(r.URL.Path, name, testRepo, 1)
				serve(w, r)
				return
			}
		}
		r.URL.Path = strings.Replace(r.URL.Path, "org/good", testRepo, 1)
		good.ServeHTTP(w, r)
	}
}

func newTestCache(endpoint string) *Cache {
	return NewCache(endpoint, hub.NewHTTPClient(8), clock.RealClock{})
}

func with(name, content string) http.HandlerFunc {
	served := repository{apiPath: api, "config.json": config, treePath: `[{"type": "file", "path": "model.safetensors"}]`}
	served[name] = content
	return served.ServeHTTP
}

// A fault of one repository affects only its readers.
func TestMalformedFileIsNotAnOutage(t *testing.T) {
	const private = "other/private"
	answer := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	for _, tc := range []struct {
		reason string
		serve  http.HandlerFunc
	}{
		{"config.json is a page", with("config.json", "<html>")},
		{"config.json is too large", with("config.json", "{"+strings.Repeat(" ", maxConfig))},
		{"the weights are no safetensors", with("model.safetensors", "GGUF\xff\xff\xff\xff")},
		{"the header is not JSON", with("model.safetensors", "\x03\x00\x00\x00\x00\x00\x00\x00{x}")},
		{"the header is cut off", with("model.safetensors", "\x00\x10\x00\x00\x00\x00\x00\x00{}")},
		{"the header is cut off, and ranges are ignored", func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "model.safetensors") {
				fmt.Fprint(w, "\x00\x10\x00\x00\x00\x00\x00\x00{}")
				return
			}
			with("", "")(w, r)
		}},
		{"the index is not JSON", with("model.safetensors.index.json", `{"weight_map": {x}}`)},
		{"the listing is an object", with(treePath, `{}`)},
		{"the API's answer has no end", with(apiPath, `{"sha": "`+testCommit)},
		{"the hub fails for this repository", answer(http.StatusInternalServerError)},
		{"the asker has asked too often", answer(http.StatusTooManyRequests)},
		{"a redirect leads in a circle", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, strings.Replace(r.URL.Path, testRepo, private, 1), http.StatusFound)
		}},
		{"a connection breaks within a file", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"sha":`)
		}},
		{"the files lie on a host that is away", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/x", http.StatusFound)
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			cache := newTestCache(serve(t, repositories(map[string]http.HandlerFunc{private: tc.serve})).URL)
			_, err := cache.Describe(t.Context(), private, "", "secret")
			if err != nil && !strings.Contains(err.Error(), private) {
				t.Errorf("Describe() of the broken one = %v, want it named", err)
			}
			if _, err := cache.Describe(t.Context(), "org/good", "", ""); err != nil {
				t.Errorf("Describe() of another = %v", err)
			}
		})
	}
}

func TestOutageNamesNoRepository(t *testing.T) {
	const private = "other/private"
	for _, tc := range []struct {
		reason string
		serve  http.HandlerFunc
	}{
		{"the hub is overloaded", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }},
		{"the hub hangs up", func(w http.ResponseWriter, _ *http.Request) {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.Close()
			}
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			var asked atomic.Int64
			cache := newTestCache(serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				tc.serve(w, r)
			}).URL)
			if _, err := cache.Describe(t.Context(), private, "", "secret"); err == nil || !strings.Contains(err.Error(), private) {
				t.Errorf("Describe() = %v, want an error that names %s to its asker", err, private)
			}
			before := asked.Load()
			_, err := cache.Describe(t.Context(), "org/good", "", "")
			if err == nil || strings.Contains(err.Error(), private) || asked.Load() != before {
				t.Errorf("Describe() of another = %v after %d requests, want the outage without a name and no request", err, asked.Load()-before)
			}
			if !errors.As(err, new(*Error)) {
				t.Errorf("Describe() of another = %T, want an Error", err)
			}
		})
	}
}

func TestHeadersAreReadTwoAtATime(t *testing.T) {
	var now, most, waiting atomic.Int64
	release := make(chan struct{})
	cache := newTestCache(serve(t, func(w http.ResponseWriter, r *http.Request) {
		if _, repo, ok := strings.Cut(r.URL.Path, "org/model"); ok && repo != "" {
			r.URL.Path = strings.Replace(r.URL.Path, "org/model"+repo[:1], testRepo, 1)
		}
		if strings.HasSuffix(r.URL.Path, "/model.safetensors") {
			most.Store(max(most.Load(), now.Add(1)))
			<-release
			defer now.Add(-1)
		}
		with("model.safetensors", safetensors(map[string][2]int64{"a": {0, 10}}))(w, r)
		if strings.HasSuffix(r.URL.Path, "/hf_quant_config.json") {
			waiting.Add(1)
		}
	}).URL)
	var askers sync.WaitGroup
	for i := range 5 {
		askers.Go(func() {
			if _, err := cache.Describe(t.Context(), fmt.Sprintf("org/model%d", i), "", ""); err != nil {
				t.Error(err)
			}
		})
	}
	for deadline := time.Now().Add(5 * time.Second); waiting.Load() < 5 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	close(release)
	askers.Wait()
	if most.Load() > maxHeaders {
		t.Errorf("%d headers were read at once, want at most %d", most.Load(), maxHeaders)
	}
}

// largeHeader returns a header of at most this many bytes, with as many tensors as fit.
func largeHeader(bytes int) string {
	tensors := map[string][2]int64{}
	for i := range bytes / 113 {
		tensors[fmt.Sprintf("model.layers.%02d.mlp.experts.%06d.down_proj.weight", i%60, i)] = [2]int64{int64(i), int64(i + 1)}
	}
	return safetensors(tensors)
}

func BenchmarkHeader(b *testing.B) {
	s := httptest.NewServer(with("model.safetensors", largeHeader(maxHeader*97/100)))
	defer s.Close()
	c, err := hub.New(hub.Options{Endpoint: s.URL, HTTP: hub.NewHTTPClient(4)})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Model(context.Background(), c, testRepo, "main"); err != nil {
			b.Fatal(err)
		}
	}
}

// A slow repository does not affect the others.
func TestSlowRepositoryIsNotAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := clock.RealClock{}
		slow := roundTripper(func(r *http.Request) (*http.Response, error) {
			if !strings.Contains(r.URL.Path, "org/good") {
				select {
				case <-r.Context().Done():
					return nil, r.Context().Err()
				case <-time.After(requestTimeout - time.Second):
				}
			}
			recorder := httptest.NewRecorder()
			repositories(map[string]http.HandlerFunc{"org/slow": with("", "")})(recorder, r)
			answer := recorder.Result()
			answer.Request = r
			return answer, nil
		})
		cache := NewCache("http://hub.example", &http.Client{Transport: slow}, now)
		_, err := cache.Describe(t.Context(), "org/slow", "", "")
		if err == nil || !strings.Contains(err.Error(), "did not answer all requests within 10s") {
			t.Errorf("Describe() of the slow one = %v, want the deadline", err)
		}
		if _, err := cache.Describe(t.Context(), "org/good", "", ""); err != nil {
			t.Errorf("Describe() of another = %v", err)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
