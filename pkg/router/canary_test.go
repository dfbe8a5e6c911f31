// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/modelberth/modelberth/pkg/router/balance"
	"github.com/modelberth/modelberth/pkg/router/hold"
	"github.com/modelberth/modelberth/pkg/router/models"
)

// withCanary returns a set of replicas, the first of which is a canary.
func withCanary(replicas, percent int) models.Owner {
	out := set("m", replicas)
	out.Canary = &balance.Canary{Replicas: out.Replicas[:1], Percent: percent}
	return out
}

// TestCanary: a canary gets its share, the metrics compare the templates, and the failure of a canary costs no request.
func TestCanary(t *testing.T) {
	const requests = 200
	for _, c := range []struct {
		reason string
		isDead bool
		want   map[string]float64
	}{
		{"both templates answer", false, map[string]float64{"new": 20, "previous": 180}},
		{"the canary is dead", true, map[string]float64{"previous": 200}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			h := newHolding(t, hold.Limits{}, func(*holding, *models.Owner) {}, func(req *http.Request) (*http.Response, error) {
				if c.isDead && req.URL.Host == "m-0:5000" {
					return nil, &net.OpError{Op: "dial", Err: fmt.Errorf("refused")}
				}
				return says(req), nil
			})
			h.is(withCanary(3, 10))
			for range requests {
				if got, _ := h.send(t.Context(), "m", false, 100); got.Code != http.StatusOK {
					t.Fatalf("status %d: %s", got.Code, got.Body)
				}
			}
			got := map[string]float64{}
			for _, template := range []string{"new", "previous"} {
				if n := value(t, h.metrics.canary.requests.WithLabelValues("a:m", template, "200")); n > 0 {
					got[template] = n
				}
			}
			for template, want := range c.want {
				if n := got[template]; n < want-2 || n > want+2 {
					t.Errorf("%.0f requests for the %s template, want %.0f", n, template, want)
				}
			}
			refused := value(t, h.metrics.canary.requests.WithLabelValues("a:m", "new", "503"))
			if wantRefused := map[bool]float64{true: 20}[c.isDead]; refused < wantRefused-2 || refused > wantRefused+2 {
				t.Errorf("%.0f refused connections of the new template, want %.0f", refused, wantRefused)
			}
			if len(got) != len(c.want) {
				t.Errorf("the metrics are %v, want %v", got, c.want)
			}
		})
	}
}

// TestResumeStaysWithItsTemplate: the rest of a stream comes from a replica with the same template, if there is one.
func TestResumeStaysWithItsTemplate(t *testing.T) {
	for _, c := range []struct {
		reason   string
		canaries int
		stays    bool
	}{{"two replicas with each template", 2, true}, {"one replica with each template", 1, false}} {
		t.Run(c.reason, func(t *testing.T) {
			var hosts []string
			h := newHolding(t, hold.Limits{}, func(*holding, *models.Owner) {}, func(req *http.Request) (*http.Response, error) {
				if hosts = append(hosts, req.URL.Host); len(hosts) == 2 {
					return reply(http.StatusOK, "text/event-stream", strings.NewReader("data: [DONE]\n\n")), nil
				}
				half := io.MultiReader(strings.NewReader(`data: {"choices":[{"index":0,"text":"Hello"}]}`+"\n\n"), iotest.ErrReader(io.ErrUnexpectedEOF))
				return reply(http.StatusOK, "text/event-stream", half), nil
			})
			h.settings.Resumes = true
			owner := set("m", 2*c.canaries)
			owner.Canary = &balance.Canary{Replicas: owner.Replicas[:c.canaries], Percent: 50}
			h.is(owner)
			began := map[bool]int{}
			for range 40 {
				hosts = nil
				req, got := newStream(t, `{"model":"m","stream":true,"prompt":"x","max_tokens":9}`)
				serve(h, got, req)
				if len(hosts) != 2 || hosts[0] == hosts[1] || owner.Canary.Has(hosts[0]) == owner.Canary.Has(hosts[1]) != c.stays {
					t.Fatalf("the replicas are %v, of which %v are canaries", hosts, owner.Canary.Replicas)
				}
				began[owner.Canary.Has(hosts[0])]++
			}
			if len(began) != 2 {
				t.Errorf("all streams began with one template: %v", began)
			}
		})
	}
}

// TestWithoutCanary: without a canary, no metrics compare templates.
func TestWithoutCanary(t *testing.T) {
	h := newHolding(t, hold.Limits{}, func(*holding, *models.Owner) {}, func(req *http.Request) (*http.Response, error) { return says(req), nil })
	h.is(set("m", 2))
	h.send(t.Context(), "m", true, 10)
	series := make(chan prometheus.Metric, 10)
	h.metrics.canary.requests.Collect(series)
	if len(series) != 0 {
		t.Errorf("there are %d series", len(series))
	}
}

func value(t *testing.T, counter prometheus.Counter) float64 {
	t.Helper()
	var out dto.Metric
	if err := counter.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue()
}
