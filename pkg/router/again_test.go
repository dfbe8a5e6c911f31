// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/router/hold"
	"github.com/modelberth/modelberth/pkg/router/models"
	"github.com/modelberth/modelberth/pkg/router/resume"
)

// TestResume: another replica continues the stream of a replica that dies, once. Afterwards nothing is still counted.
func TestResume(t *testing.T) {
	event := func(id, text string) string {
		return `data: {"id":"` + id + `","choices":[{"index":0,"text":"` + text + `","finish_reason":null}]}` + "\n\n"
	}
	const done = "data: [DONE]\n\n"
	const lost = `event: error` + "\n" + `data: {"type":"error","error":{"message":"the replica was lost in mid-answer, and the answer cannot be continued: `
	problem := func(text string) string {
		return lost + text + `","type":"server_error","param":null,"code":"replica_lost"}}` + "\n\n"
	}
	rest := func() (*http.Response, error) {
		return reply(http.StatusOK, "text/event-stream", strings.NewReader(event("2", " world")+done)), nil
	}
	merged := `data: {"choices":[{"finish_reason":null,"index":0,"text":" world"}],"id":"1"}` + "\n\n" + done
	cases := []struct {
		reason   string
		replicas int
		more     string
		second   func() (*http.Response, error)
		want     string
		isOff    bool
	}{
		{"another replica has the rest", 2, "", rest, event("1", "Hello") + merged, false},
		{"no other replica", 1, "", rest, event("1", "Hello") + problem("no replica is left"), false},
		{"a request that depends on its whole answer", 2, `,"logprobs":1`, rest, event("1", "Hello") + problem(`the effect of \"logprobs\" depends on the whole answer`), false},
		{"the other one refuses the rest", 2, "", func() (*http.Response, error) {
			return reply(http.StatusBadRequest, "application/json", strings.NewReader(`no`)), nil
		}, event("1", "Hello") + problem(`the other replica answered with status 400: no`), false},
		{"the other one is dead", 2, "", func() (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
		}, event("1", "Hello") + problem(`the other replica could not be reached`), false},
		{"the operator did not ask for it", 2, "", rest, event("1", "Hello"), true},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			var hosts, bodies []string
			h := newHolding(t, hold.Limits{}, func(*holding, *models.Owner) {}, func(req *http.Request) (*http.Response, error) {
				body, _ := io.ReadAll(req.Body)
				if int64(len(body)) != req.ContentLength {
					t.Errorf("a body of %d bytes has the length %d", len(body), req.ContentLength)
				}
				hosts, bodies = append(hosts, req.URL.Host), append(bodies, string(body))
				if len(hosts) > 1 {
					return c.second()
				}
				half := io.MultiReader(strings.NewReader(event("1", "Hello")+`data: {"id":`), iotest.ErrReader(io.ErrUnexpectedEOF))
				return reply(http.StatusOK, "text/event-stream", half), nil
			})
			h.settings.Resumes = !c.isOff
			h.is(set("m", c.replicas))
			req, got := newStream(t, `{"model":"m","stream":true,"prompt":"Say it: ","max_tokens":9`+c.more+`}`)
			isBroken := serve(h, got, req)
			if text, isWhole := got.Body.String(), !c.isOff; isBroken == isWhole || isWhole && text != c.want {
				t.Errorf("broken: %t (-want +got):\n%s", isBroken, cmp.Diff(c.want, text))
			}
			if len(hosts) > 1 {
				if hosts[0] == hosts[1] {
					t.Error("the rest is asked of the replica that died")
				}
				want := `{"max_tokens":8,"model":"m","prompt":"Say it: Hello","stream":true,"stream_options":{"continuous_usage_stats":true,"include_usage":true}}`
				if diff := cmp.Diff(want, bodies[1]); diff != "" {
					t.Errorf("the second request (-want +got):\n%s", diff)
				}
			}
			if loads := h.counters.Loads(); len(loads) != 0 || h.buffered.Load() != 0 || h.resumable.Used() != 0 {
				t.Errorf("the loads %v, %d bytes of bodies and %d of answers are left", loads, h.buffered.Load(), h.resumable.Used())
			}
		})
	}
}

// TestResumeWithoutMemory: if the memory for answers is full, a stream ends with its replica, and the log names the
// flag once.
func TestResumeWithoutMemory(t *testing.T) {
	h := newHolding(t, hold.Limits{}, func(*holding, *models.Owner) {}, func(*http.Request) (*http.Response, error) {
		half := io.MultiReader(strings.NewReader(`data: {"choices":[{"index":0,"text":"Hello"}]}`+"\n\n"), iotest.ErrReader(io.ErrUnexpectedEOF))
		return reply(http.StatusOK, "text/event-stream", half), nil
	})
	var log strings.Builder
	h.settings.Resumes = true
	h.resumable = resume.NewMemory(1, fullLog(1, slog.New(slog.NewTextHandler(&log, nil))))
	h.is(set("m", 2))
	for range 2 {
		req, got := newStream(t, `{"model":"m","stream":true,"prompt":"x","max_tokens":9}`)
		serve(h, got, req)
		if text := got.Body.String(); !strings.Contains(text, "Hello") || !strings.Contains(text, "the router's memory for the answers of streams is full") {
			t.Errorf("the client gets %q", text)
		}
	}
	if strings.Count(log.String(), "raise --resume-memory-bytes") != 1 || h.resumable.Used() != 0 {
		t.Errorf("%d bytes are left, and the log is %q", h.resumable.Used(), log.String())
	}
}

// TestResumeOfClientThatGoes: the router does not continue an answer after the client has left.
func TestResumeOfClientThatGoes(t *testing.T) {
	asked := 0
	h := newHolding(t, hold.Limits{}, func(*holding, *models.Owner) {}, func(req *http.Request) (*http.Response, error) {
		asked++
		return reply(http.StatusOK, "text/event-stream", iotest.ErrReader(req.Context().Err())), nil
	})
	h.settings.Resumes, h.settings.Deadline = true, time.Nanosecond
	h.is(set("m", 2))
	req, got := newStream(t, `{"model":"m","stream":true,"prompt":"x","max_tokens":9}`)
	serve(h, got, req)
	if asked > 1 || len(h.counters.Loads()) != 0 {
		t.Errorf("%d requests are sent, and the loads %v are left", asked, h.counters.Loads())
	}
}
