// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/modelberth/modelberth/pkg/comparison"
	"github.com/modelberth/modelberth/pkg/router/balance"
	"github.com/modelberth/modelberth/pkg/router/hold"
	"github.com/modelberth/modelberth/pkg/router/models"
)

// onTrial returns a set whose only replica, or the first of several, has a new template.
func onTrial(replicas int, template string) models.Owner {
	out := set("m", replicas)
	out.Canary = &balance.Canary{ID: template, Replicas: out.Replicas[:1], Percent: 100}
	return out
}

// TestWhatCountsAsAFailure: a template is blamed for what its replica or its engine did, and never for what a client did.
func TestWhatCountsAsAFailure(t *testing.T) {
	status := func(code int) engines {
		return func(*http.Request) (*http.Response, error) {
			return reply(code, "application/json", strings.NewReader(`{}`)), nil
		}
	}
	breaks := func(kind, text string, err error) engines {
		return func(*http.Request) (*http.Response, error) {
			return reply(http.StatusOK, kind, io.MultiReader(strings.NewReader(text), iotest.ErrReader(err))), nil
		}
	}
	stream := func(text string) engines {
		return func(*http.Request) (*http.Response, error) {
			return reply(http.StatusOK, "text/event-stream", strings.NewReader(text)), nil
		}
	}
	const half = "data: {\"choices\":[{\"text\":\"he\"}]}\n\n"
	served, failed, nothing := comparison.Counts{Served: 1}, comparison.Counts{Failed: 1}, comparison.Counts{}
	timed := func(first, each int64) comparison.Counts {
		return comparison.Counts{Served: 1, FirstToken: comparison.Times{Count: first}, PerToken: comparison.Times{Count: each}}
	}
	for _, c := range []struct {
		reason   string
		isStream bool
		engine   engines
		want     comparison.Counts
	}{
		{"an answer", false, status(200), served},
		{"a stream without a usage", true, stream(wholeStream), timed(1, 0)},
		{"a stream with a usage", true, stream(half + half + "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\n"), timed(1, 1)},
		{"the client's mistake", false, status(400), nothing},
		{"a long queue", false, status(429), nothing},
		{"a route that the engine does not have", false, status(501), nothing},
		{"an engine's error", false, status(500), failed},
		{"an engine that loads its model", false, status(503), failed},
		{"a refused connection", false, func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
		}, failed},
		{"an engine that dies before its answer", false, func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }, failed},
		{"a broken answer", false, breaks("application/json", `{"choi`, io.ErrUnexpectedEOF), failed},
		{"a broken stream", true, breaks("text/event-stream", half, io.ErrUnexpectedEOF), failed},
		{"an error in a stream", true, stream(half + "data: {\"error\":{\"message\":\"engine died\",\"code\":500}}\n\n"), failed},
		{"the client's mistake in a stream", true, stream("data: {\"error\":{\"message\":\"too long\",\"code\":400}}\n\n"), timed(1, 0)},
		{"an answer that looks like an error", true, stream("data: {\"choices\":[{\"text\":\"{\\\"error\\\":{\\\"code\\\":500}}\"}]}\n\n"), timed(1, 0)},
		{"a stream longer than the deadline", true, breaks("text/event-stream", half, context.DeadlineExceeded), timed(1, 0)},
	} {
		t.Run(c.reason, func(t *testing.T) {
			h := newHolding(t, hold.Limits{}, func(*holding, *models.Owner) {}, c.engine)
			h.is(onTrial(1, "t1"))
			h.send(t.Context(), "m", c.isStream, 10)
			var got comparison.Pair
			for _, set := range h.Comparisons().Sets {
				got = got.Plus(set.Pair)
			}
			ignored := cmpopts.IgnoreFields(comparison.Times{}, "Logs", "Squares")
			if diff := cmp.Diff(comparison.Pair{New: c.want}, got, ignored); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestClientsThatLeave: a cancelled request shows nothing about a template.
func TestClientsThatLeave(t *testing.T) {
	for _, isStream := range []bool{false, true} {
		ctx, leave := context.WithCancel(t.Context())
		h := newHolding(t, hold.Limits{}, func(*holding, *models.Owner) {}, func(req *http.Request) (*http.Response, error) {
			leave()
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		h.is(onTrial(1, "t1"))
		h.send(ctx, "m", isStream, 10)
		if got := h.Comparisons(); len(got.Sets) > 0 {
			t.Errorf("the counts are %+v", got)
		}
	}
}

// TestClientsThatLeaveAfterwards: a client may close its connection as soon as it has the whole answer.
func TestClientsThatLeaveAfterwards(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	h := newHolding(t, hold.Limits{}, func(*holding, *models.Owner) {}, func(*http.Request) (*http.Response, error) {
		answer := reply(http.StatusOK, "application/json", strings.NewReader(`{}`))
		answer.Body = closing{answer.Body, leave}
		return answer, nil
	})
	h.is(onTrial(1, "t1"))
	h.send(ctx, "m", false, 10)
	if sets := h.Comparisons().Sets; len(sets) != 1 || sets[0].New.Served != 1 {
		t.Errorf("the counts are %+v, want one answer", sets)
	}
}

// closing calls a function when the body is closed.
type closing struct {
	io.ReadCloser
	then func()
}

func (c closing) Close() error {
	c.then()
	return c.ReadCloser.Close()
}

// TestResumedStreamBlamesTheDeadReplica: each replica of a stream is counted for its own part.
func TestResumedStreamBlamesTheDeadReplica(t *testing.T) {
	sent := 0
	h := newHolding(t, hold.Limits{}, func(*holding, *models.Owner) {}, func(*http.Request) (*http.Response, error) {
		sent++
		if sent == 2 {
			return reply(http.StatusOK, "text/event-stream", strings.NewReader("data: [DONE]\n\n")), nil
		}
		half := io.MultiReader(strings.NewReader(`data: {"choices":[{"index":0,"text":"Hello"}]}`+"\n\n"), iotest.ErrReader(io.ErrUnexpectedEOF))
		return reply(http.StatusOK, "text/event-stream", half), nil
	})
	h.settings.Resumes = true
	h.is(onTrial(2, "t1"))
	req, got := newStream(t, `{"model":"m","stream":true,"prompt":"x","max_tokens":9}`)
	serve(h, got, req)
	want := comparison.Report{Sets: []comparison.Set{{
		Namespace: "a", Name: "m", Template: "t1",
		Pair: comparison.Pair{New: comparison.Counts{Failed: 1}, Previous: comparison.Counts{Served: 1}},
	}}}
	if diff := cmp.Diff(want, h.Comparisons()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCountsBelongToOneTemplate: another template starts from nothing, a late answer for the former one is dropped, and
// no counts stay when the replicas have one template.
func TestCountsBelongToOneTemplate(t *testing.T) {
	var during func()
	h := newHolding(t, hold.Limits{}, func(*holding, *models.Owner) {}, func(req *http.Request) (*http.Response, error) {
		if during != nil {
			during()
		}
		return says(req), nil
	})
	served := func(template string, want int64) {
		t.Helper()
		sets := h.Comparisons().Sets
		if len(sets) != 1 || sets[0].Template != template || sets[0].New.Served != want {
			t.Errorf("the counts are %+v, want %d of %s", sets, want, template)
		}
	}
	h.is(onTrial(2, "t1"), owner("a", "other", "o-0:5000"))
	h.send(t.Context(), "m", false, 10)
	h.send(t.Context(), "m", false, 10)
	h.send(t.Context(), "other", false, 10)
	served("t1", 2)
	h.is(onTrial(2, "t2"))
	if sets := h.Comparisons().Sets; len(sets) > 0 {
		t.Errorf("a new template has the counts %+v", sets)
	}
	h.send(t.Context(), "m", false, 10)
	during = func() {
		during = nil
		h.is(onTrial(2, "t3"))
		h.send(t.Context(), "m", false, 10)
	}
	h.send(t.Context(), "m", false, 10) // it begins with t2, and ends with t3
	served("t3", 1)
	h.is(set("m", 2))
	if sets := h.Comparisons().Sets; len(sets) > 0 || len(h.tallies.byID) > 0 {
		t.Errorf("without a new template, the counts are %+v", sets)
	}
}

// TestOlderWorkspaceWithTheSameName: a set is counted, and its streams go on with its own replicas, although an older
// Workspace has its ID.
func TestOlderWorkspaceWithTheSameName(t *testing.T) {
	var hosts []string
	h := newHolding(t, hold.Limits{}, func(*holding, *models.Owner) {}, func(req *http.Request) (*http.Response, error) {
		if hosts = append(hosts, req.URL.Host); len(hosts) == 2 {
			return reply(http.StatusOK, "text/event-stream", strings.NewReader("data: [DONE]\n\n")), nil
		}
		half := io.MultiReader(strings.NewReader(`data: {"choices":[{"index":0,"text":"Hello"}]}`+"\n\n"), iotest.ErrReader(io.ErrUnexpectedEOF))
		return reply(http.StatusOK, "text/event-stream", half), nil
	})
	h.settings.Resumes = true
	older, younger := owner("a", "m", "other:5000"), onTrial(2, "t1")
	older.Names, younger.Created = []string{"other"}, older.Created.Add(time.Second)
	h.is(older, younger)
	req, got := newStream(t, `{"model":"m","stream":true,"prompt":"x","max_tokens":9}`)
	serve(h, got, req)
	if diff := cmp.Diff([]string{"m-0:5000", "m-1:5000"}, hosts); diff != "" {
		t.Errorf("replicas (-want +got):\n%s", diff)
	}
	if sets := h.Comparisons().Sets; len(sets) != 1 || sets[0].New.Failed != 1 || sets[0].Previous.Served != 1 {
		t.Errorf("the counts are %+v, want one failure and one answer", sets)
	}
}

// TestChangingReplicasCountForNoTemplate: until a replica has replaced its pod, nobody knows which template answers. A
// request counts for the template that its replica had when the request began.
func TestChangingReplicasCountForNoTemplate(t *testing.T) {
	changing := onTrial(1, "t1")
	changing.Canary.Replicas, changing.Canary.Changing = nil, changing.Replicas
	var during func()
	h := newHolding(t, hold.Limits{}, func(*holding, *models.Owner) {}, func(*http.Request) (*http.Response, error) {
		during()
		return reply(http.StatusInternalServerError, "application/json", strings.NewReader(`{}`)), nil
	})
	for _, c := range []struct {
		reason        string
		before, after models.Owner
		want          []comparison.Set
	}{
		{"the old pod answers", changing, changing, []comparison.Set{}},
		{"the new pod is ready before the old one has answered", changing, onTrial(1, "t1"), []comparison.Set{}},
		{"the new pod answers", onTrial(1, "t1"), onTrial(1, "t1"), []comparison.Set{
			{Namespace: "a", Name: "m", Template: "t1", Pair: comparison.Pair{New: comparison.Counts{Failed: 1}}},
		}},
		{"the replicas get another template during the answer", set("m", 1), onTrial(1, "t2"), []comparison.Set{}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			h.is(c.before)
			during = func() { h.is(c.after) }
			h.send(t.Context(), "m", false, 10)
			if diff := cmp.Diff(c.want, h.Comparisons().Sets); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestCountsBelongToOneSplit: counts start again if the numbers of replicas or their share change, and go on if a replica
// crashes and returns.
func TestCountsBelongToOneSplit(t *testing.T) {
	splitBy := func(replicas, canaries int, split balance.Split) models.Owner {
		out := set("m", replicas)
		out.Canary = &balance.Canary{ID: "t1", Replicas: out.Replicas[:canaries], Percent: 100, Split: split}
		return out
	}
	begun := balance.Split{New: 1, Previous: 2}
	var during func()
	h := newHolding(t, hold.Limits{}, func(*holding, *models.Owner) {}, func(req *http.Request) (*http.Response, error) {
		if during != nil {
			during()
		}
		return says(req), nil
	})
	for _, c := range []struct {
		reason string
		after  models.Owner
		want   int64
	}{
		{"nothing changes", splitBy(3, 1, begun), 2},
		{"a replica crashes", splitBy(2, 1, begun), 2},
		{"another replica gets the new template", splitBy(3, 1, balance.Split{New: 2, Previous: 1}), 1},
		{"a replica is added", splitBy(3, 1, balance.Split{New: 1, Previous: 3}), 1},
		{"another weight", splitBy(3, 1, balance.Split{New: 1, Previous: 2, Percent: 5}), 1},
		{"another replica is ready for the first time", splitBy(4, 1, begun), 1},
		{"another replica answers with the new template for the first time", splitBy(3, 2, begun), 1},
	} {
		t.Run(c.reason, func(t *testing.T) {
			h.is(set("m", 1))
			h.Comparisons() // forgets
			h.is(splitBy(3, 1, begun))
			h.send(t.Context(), "m", false, 10)
			h.is(c.after)
			h.send(t.Context(), "m", false, 10)
			h.is(c.after)
			if sets := h.Comparisons().Sets; len(sets) != 1 || sets[0].New.Served != c.want {
				t.Errorf("the counts are %+v, want %d", sets, c.want)
			}
		})
	}
	h.is(splitBy(3, 1, begun))
	during = func() { h.is(splitBy(3, 1, balance.Split{New: 1, Previous: 3})) }
	h.send(t.Context(), "m", false, 10)
	if sets := h.Comparisons().Sets; len(sets) > 0 {
		t.Errorf("a request of the former split counts: %+v", sets)
	}
}

// TestRequestsBehindAGateway: an answer that a proxy forwards counts, and a request that the proxy gives up shows nothing
// about the template.
func TestRequestsBehindAGateway(t *testing.T) {
	answers := func(status int) func(*Picked) {
		return func(p *Picked) {
			p.Begin(status, http.Header{})
			p.Take([]byte("{}"), true)
		}
	}
	for _, c := range []struct {
		reason string
		answer func(*Picked)
		want   comparison.Counts
	}{
		{"a whole stream", func(p *Picked) {
			p.Begin(http.StatusOK, http.Header{"Content-Type": {"text/event-stream"}})
			p.Take([]byte(wholeStream), true)
		}, comparison.Counts{Served: 1, FirstToken: comparison.Times{Count: 1}}},
		{"the client's mistake", answers(http.StatusBadRequest), comparison.Counts{}},
		{"an error of the engine, or of the gateway", answers(http.StatusInternalServerError), comparison.Counts{}},
		{"a connection that the gateway did not get", answers(http.StatusServiceUnavailable), comparison.Counts{}},
		{"the gateway's timeout", answers(http.StatusGatewayTimeout), comparison.Counts{}},
		{"an engine that dies in mid-answer", func(p *Picked) {
			p.Begin(http.StatusOK, http.Header{"Content-Type": {"text/event-stream"}})
			p.Take([]byte("data: {\"error\":{\"message\":\"engine died\",\"code\":500}}\n\n"), true)
		}, comparison.Counts{Failed: 1}},
		{"no answer", func(*Picked) {}, comparison.Counts{}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			h := newHolding(t, hold.Limits{}, func(*holding, *models.Owner) {}, nil)
			owner := onTrial(1, "t1")
			h.is(owner)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions",
				strings.NewReader(`{"model": "m", "stream": true, "messages": []}`))
			if err != nil {
				t.Fatal(err)
			}
			picked := h.Pick(req, &Pool{Namespace: owner.Namespace, Name: owner.Name})
			if own := picked.Answer(); own != nil {
				t.Fatalf("the router answers %d %s", own.Status, own.Body)
			}
			c.answer(picked)
			picked.End()
			var got comparison.Pair
			for _, set := range h.Comparisons().Sets {
				got = got.Plus(set.Pair)
			}
			ignored := cmpopts.IgnoreFields(comparison.Times{}, "Logs", "Squares")
			if diff := cmp.Diff(comparison.Pair{New: c.want}, got, ignored); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
