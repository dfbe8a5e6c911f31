// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/router/balance"
	"github.com/modelberth/modelberth/pkg/router/hold"
	"github.com/modelberth/modelberth/pkg/router/limit"
	"github.com/modelberth/modelberth/pkg/router/models"
)

// TestDemand: a request is in the demand of its set, and of no other, until its answer ends.
func TestDemand(t *testing.T) {
	cases := []struct {
		reason, model string
		status        int
		want          Demand
	}{
		{"a request at a replica", "chat", http.StatusOK, Demand{Requests: 1, Tokens: 17}},
		{"an engine that refuses it", "chat", http.StatusBadRequest, Demand{Requests: 1, Tokens: 17}},
		{"a replica that refuses the connection", "broken", 0, Demand{}},
		{"no model of this name", "gone", 0, Demand{}},
		{"a Workspace without a set has no ScaledObject", "alone", http.StatusOK, Demand{}},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			var r *Router
			var during Demand
			replica := engine(t, func(w http.ResponseWriter, _ *http.Request) {
				during = r.Demand("team-a:" + c.model)
				w.WriteHeader(c.status)
			})
			chat, broken, alone := owner("team-a", "chat", replica), owner("team-a", "broken", dead(t)), owner("team-a", "alone", replica)
			chat.Kind, broken.Kind = models.KindSet, models.KindSet
			r = routerOf(t, chat, broken, alone)
			server := httptest.NewServer(r)
			defer server.Close()
			post(t, server.URL+"/v1/completions", `{"model":"`+c.model+`","prompt":"hello","max_tokens":16}`)
			if diff := cmp.Diff(c.want, during, cmpopts.IgnoreFields(Demand{}, "Tokens")); diff != "" {
				t.Errorf("during the request (-want +got):\n%s", diff)
			}
			if (during.Tokens > 0) != (c.want.Tokens > 0) {
				t.Errorf("during the request, there are %d tokens", during.Tokens)
			}
			server.Close() // after the answer, the handler still has to end
			after := r.Demand("team-a:" + c.model)
			if wasCounted := c.model == "chat" || c.model == "broken"; after.Last.IsZero() == wasCounted {
				t.Errorf("the last request ended at %s", after.Last)
			}
			after.Last = time.Time{}
			if diff := cmp.Diff(Demand{}, after); diff != "" {
				t.Errorf("after the request (-want +got):\n%s", diff)
			}
		})
	}
}

func routerOf(t *testing.T, owners ...models.Owner) *Router {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return New(open(), Parts{
		Directory: directory{models.New(owners)}, Keys: limit.NewKeys(1), Counters: &balance.Counters{}, Metrics: metrics,
		Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{},
	})
}

func TestDemands(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var d demands
	first, second := d.enter("a:chat", 100, now), d.enter("a:chat", 0, now)
	second.await(forReplica)
	if diff := cmp.Diff(Demand{Requests: 2, Tokens: 101, Held: 1}, d.of("a:chat", now)); diff != "" {
		t.Errorf("two requests (-want +got):\n%s", diff)
	}
	second.await(forAdapter)
	if diff := cmp.Diff(Demand{Requests: 1, Tokens: 100, Loading: 1}, d.of("a:chat", now)); diff != "" {
		t.Errorf("a request that waits for an adapter (-want +got):\n%s", diff)
	}
	first.await(forAdapter)
	d.enter("a:third", 1, now).leave(now.Add(-lastFor - time.Second)) // it is forgotten, but not a set for which requests wait
	d.enter("a:fourth", 1, now).leave(now.Add(-lastFor - time.Second))
	if d.byID["a:third"] != nil || d.byID["a:chat"] == nil {
		t.Error("the router forgot a set for which requests wait")
	}
	first.await(forNothing)
	second.leave(now.Add(time.Second))
	second.leave(now.Add(time.Hour)) // once is enough
	first.leave(now.Add(2 * time.Second))
	if diff := cmp.Diff(Demand{Last: now.Add(2 * time.Second)}, d.of("a:chat", now.Add(time.Minute))); diff != "" {
		t.Errorf("after them (-want +got):\n%s", diff)
	}
	later := now.Add(lastFor + time.Minute)
	if diff := cmp.Diff(Demand{}, d.of("a:chat", later)); diff != "" {
		t.Errorf("long after them (-want +got):\n%s", diff)
	}
	d.enter("a:other", 1, later)
	if len(d.byID) != 1 {
		t.Errorf("%d sets are remembered, want only the busy one", len(d.byID))
	}
	var none *share // a request without a set
	none.await(forReplica)
	none.leave(now)
}

// TestHeldDemand: a request that waits for a first replica is in the demand as such.
func TestHeldDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held Demand
		h := newHolding(t, hold.Limits{Requests: 2, Bytes: 1 << 20, Time: time.Minute}, func(h *holding, owner *models.Owner) {
			held = h.Demand(owner.ID())
		}, func(*http.Request) (*http.Response, error) { return nil, errors.New("no replica") })
		h.is(set("chat", -1))
		h.send(t.Context(), "chat", false, 10)
		if held.Requests != 1 || held.Held != 1 {
			t.Errorf("during the wait, the demand is %+v", held)
		}
		if after := h.Demand("a:chat"); after.Requests != 0 || after.Held != 0 || after.Tokens != 0 {
			t.Errorf("after the wait, the demand is %+v", after)
		}
	})
}
