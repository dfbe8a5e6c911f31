// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/router/balance"
	"github.com/modelberth/modelberth/pkg/router/hold"
	"github.com/modelberth/modelberth/pkg/router/limit"
	"github.com/modelberth/modelberth/pkg/router/models"
)

// tables is a directory that can change.
type tables struct{ models.Current }

func (d *tables) Models() *models.Table {
	table, _ := d.Load()
	return table
}

func (d *tables) Next() (*models.Table, <-chan struct{}) { return d.Load() }

// wakes calls a function for each wake.
type wakes func(owner *models.Owner)

func (w wakes) Wake(owner *models.Owner) { w(owner) }

// engines answers requests without a network.
type engines func(req *http.Request) (*http.Response, error)

func (e engines) RoundTrip(req *http.Request) (*http.Response, error) { return e(req) }

const wholeStream = "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\ndata: [DONE]\n\n"

// says returns an answer: a stream if the request is for one, otherwise JSON.
func says(req *http.Request) *http.Response {
	text, _ := io.ReadAll(req.Body)
	if strings.Contains(string(text), `"stream":true`) {
		return reply(http.StatusOK, "text/event-stream", strings.NewReader(wholeStream))
	}
	return reply(http.StatusOK, "application/json", strings.NewReader(`{"choices":[]}`))
}

func reply(status int, kind string, body io.Reader) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(body), ContentLength: -1,
		ProtoMajor: 1, ProtoMinor: 1,
	}
}

// holding is a router with the test's engines and directory.
type holding struct {
	*Router
	directory *tables
}

func newHolding(t *testing.T, limits hold.Limits, wake func(h *holding, owner *models.Owner), answers engines) *holding {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	settings := open()
	settings.Hold = limits
	h := &holding{directory: &tables{}}
	h.Router = New(settings, Parts{
		Directory: h.directory, Keys: limit.NewKeys(1), Counters: &balance.Counters{}, Metrics: metrics,
		Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}, Waker: wakes(func(owner *models.Owner) { wake(h, owner) }),
	})
	h.transport, h.fresh = answers, answers
	return h
}

// set returns an InferenceSet with that many ready replicas. A negative number means that the set is scaled to zero.
func set(name string, replicas int) models.Owner {
	out := models.Owner{Namespace: "a", Name: name, Kind: "InferenceSet", Names: []string{name}, IsWakeable: true, IsAsleep: replicas < 0}
	for i := range max(0, replicas) {
		out.Replicas = append(out.Replicas, fmt.Sprintf("%s-%d:5000", name, i))
	}
	return out
}

func (h *holding) is(owners ...models.Owner) { h.directory.Store(models.New(owners)) }

// send sends a request for a model.
func (h *holding) send(ctx context.Context, model string, isStream bool, size int) (got *httptest.ResponseRecorder, isBroken bool) {
	body := fmt.Sprintf(`{"model":%q,"stream":%t,"prompt":%q}`, model, isStream, strings.Repeat("a", size))
	got = httptest.NewRecorder()
	return got, serve(h, got, requestOf(ctx, body))
}

func requestOf(ctx context.Context, body string) *http.Request {
	ctx = context.WithValue(ctx, http.ServerContextKey, &http.Server{}) //nolint:gosec // it serves nothing: a proxy breaks connections only under one
	return httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/completions", strings.NewReader(body))
}

// newStream returns a request with a body, and a recorder of its answer.
func newStream(t *testing.T, body string) (*http.Request, *httptest.ResponseRecorder) {
	t.Helper()
	return requestOf(t.Context(), body), httptest.NewRecorder()
}

// serve reports whether the answer broke off.
func serve(h *holding, got *httptest.ResponseRecorder, req *http.Request) (isBroken bool) {
	defer func() {
		if problem := recover(); problem != nil {
			isBroken = problem == http.ErrAbortHandler //nolint:errorlint // the value that net/http documents
			if !isBroken {
				panic(problem)
			}
		}
	}()
	h.ServeHTTP(got, req)
	return false
}

// TestHeldRequest follows one request through each end of a wait.
func TestHeldRequest(t *testing.T) {
	limits := hold.Limits{Requests: 2, Bytes: 1 << 20, Time: 5 * time.Minute}
	stalled := set("m", 0)
	stalled.Problem = models.Problem{Reason: "Quota", Stalled: true}
	const comment = ": the model is starting\n\n"
	problem := func(text string) string {
		return `{"message":"` + text + `","type":"server_error","param":null,"code":"model_unavailable"}`
	}
	cases := []struct {
		reason   string
		isStream bool
		// after is the time of the change to becomes.
		after   time.Duration
		becomes []models.Owner
		answers engines
		status  int
		body    string
		retry   string
		took    time.Duration
	}{
		{"a replica comes soon", false, time.Second, []models.Owner{set("m", 1)}, nil, 200, `{"choices":[]}`, "", time.Second},
		{"a stream, before the first comment", true, time.Second, []models.Owner{set("m", 1)}, nil, 200, wholeStream, "", time.Second},
		{"a stream with comments", true, 29 * time.Second, []models.Owner{set("m", 1)}, nil, 200, comment + wholeStream, "", 29 * time.Second},
		{"the set stalls", false, time.Second, []models.Owner{stalled}, nil, 503, `{"error":` + problem(`no replica of model \"m\" answers: the model cannot start until its owner acts (Quota); see the conditions of InferenceSet a:m`) + "}\n", "300", time.Second},
		{
			"the set goes during a stream", true, 20 * time.Second, nil, nil, 200,
			comment + `event: error` + "\n" + `data: {"type":"error","error":{"message":"there is no model \"m\": GET /v1/models lists the available models","type":"invalid_request_error","param":"model","code":"model_not_found"}}` + "\n\n", "", 20 * time.Second,
		},
		{"nothing starts replicas", false, time.Hour, nil, nil, 503, `{"error":` + problem(`model \"m\" has no replicas, and the router could not start one within 30s: ask the owner of InferenceSet a:m to raise spec.replicas`) + "}\n", "300", 30 * time.Second},
		{
			"the engine refuses the request after comments", true, 20 * time.Second,
			[]models.Owner{set("m", 1)},
			func(*http.Request) (*http.Response, error) {
				return reply(400, "application/json", strings.NewReader(`{"error":"long"}`)), nil
			},
			200, comment + `event: error` + "\n" + `data: {"type":"error","error":{"message":"the engine answered with status 400: {\"error\":\"long\"}","type":"invalid_request_error","param":null,"code":"engine_error"}}` + "\n\n", "", 20 * time.Second,
		},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answers := c.answers
				if answers == nil {
					answers = func(req *http.Request) (*http.Response, error) { return says(req), nil }
				}
				var woken []string
				h := newHolding(t, limits, func(_ *holding, owner *models.Owner) { woken = append(woken, owner.Name) }, answers)
				h.is(set("m", -1))
				change := time.AfterFunc(c.after, func() { h.is(c.becomes...) })
				defer change.Stop()
				start := time.Now()
				got, _ := h.send(t.Context(), "m", c.isStream, 10)
				if diff := cmp.Diff(c.body, got.Body.String()); diff != "" || got.Code != c.status || got.Header().Get("Retry-After") != c.retry {
					t.Errorf("status %d, Retry-After %q (-want +got):\n%s", got.Code, got.Header().Get("Retry-After"), diff)
				}
				if took := time.Since(start); took != c.took {
					t.Errorf("it took %s, want %s", took, c.took)
				}
				if len(woken) == 0 || woken[0] != "m" {
					t.Errorf("woken: %q, want m", woken)
				}
			})
		})
	}
}

// TestHeldForAdapter follows a request for an adapter that no ready replica has loaded. It waits briefly, wakes no set, and
// is no demand for replicas.
func TestHeldForAdapter(t *testing.T) {
	const own = `{"message":"no ready replica of InferenceSet a:m has loaded \"lora\" yet: see status.adapters of its Workspaces","type":"server_error","param":null,"code":"model_unavailable"}`
	const unknown = `{"message":"there is no model \"lora\": GET /v1/models lists the available models","type":"invalid_request_error","param":"model","code":"model_not_found"}`
	const waited = `; the request waited for 10s`
	with := func(replicas int, change func(*models.Owner)) []models.Owner {
		out := set("m", replicas)
		change(&out)
		return []models.Owner{out}
	}
	loads := func(o *models.Owner) { o.Loading = []string{"lora"} }
	restarts := func(o *models.Owner) { o.Names, o.Partial = []string{"m", "lora"}, map[string][]string{"lora": {}} }
	loaded := func(o *models.Owner) { o.Names = []string{"m", "lora"} }
	alone := func(o *models.Owner) { o.Kind, o.IsWakeable, o.Loading = "Workspace", false, []string{"lora"} }
	cases := []struct {
		reason  string
		begins  []models.Owner
		limit   time.Duration
		after   time.Duration
		becomes []models.Owner
		status  int
		body    string
		took    time.Duration
		woken   int
	}{
		{"a replica loads it soon", with(1, loads), time.Minute, 5 * time.Second, with(1, loaded), 200, `{"choices":[]}`, 5 * time.Second, 0},
		{"a Workspace without a set loads it soon", with(1, alone), time.Minute, 5 * time.Second, with(1, loaded), 200, `{"choices":[]}`, 5 * time.Second, 0},
		{"the replica with it restarts", with(1, restarts), time.Minute, 5 * time.Second, with(2, loaded), 200, `{"choices":[]}`, 5 * time.Second, 0},
		{"no replica loads it in time", with(1, loads), 10 * time.Minute, time.Hour, nil, 503, `{"error":` + own + "}\n", 30 * time.Second, 0},
		{"requests wait for less than adapters take", with(1, loads), 10 * time.Second, time.Hour, nil, 503, `{"error":` + strings.Replace(own, "Workspaces\",", "Workspaces"+waited+"\",", 1) + "}\n", 10 * time.Second, 0},
		{"no request waits", with(1, loads), 0, time.Hour, nil, 503, `{"error":` + own + "}\n", 0, 0},
		{"it fails", with(1, loads), time.Minute, 5 * time.Second, with(1, func(*models.Owner) {}), 404, `{"error":` + unknown + "}\n", 5 * time.Second, 0},
		{"it does not exist", with(1, func(*models.Owner) {}), time.Minute, time.Hour, nil, 404, `{"error":` + unknown + "}\n", 0, 0},
		{"a set at zero will load it at its start", with(-1, loads), time.Minute, 20 * time.Second, with(1, loaded), 200, `{"choices":[]}`, 20 * time.Second, 1},
		{"the last replica goes meanwhile", with(1, loads), time.Minute, 20 * time.Second, with(-1, loads), 503, "", 50 * time.Second, 1},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limits := hold.Limits{Requests: 2, Bytes: 1 << 20, Time: c.limit}
				if c.limit == 0 {
					limits.Requests = 0
				}
				woken := 0
				h := newHolding(t, limits, func(*holding, *models.Owner) { woken++ }, func(req *http.Request) (*http.Response, error) { return says(req), nil })
				h.is(c.begins...)
				change := time.AfterFunc(c.after, func() { h.is(c.becomes...) })
				defer change.Stop()
				time.AfterFunc(time.Second, func() {
					if got := h.Demand("a:m"); len(c.begins[0].Replicas) > 0 && got.Requests+got.Tokens+got.Held != 0 {
						t.Errorf("during the wait, the demand is %+v", got)
					}
				})
				start := time.Now()
				got, _ := h.send(t.Context(), "lora", false, 10)
				if got.Code != c.status || c.body != "" && got.Body.String() != c.body {
					t.Errorf("%d %s\nwant %d %s", got.Code, got.Body, c.status, c.body)
				}
				if got.Code == 503 && c.woken == 0 && got.Header().Get("Retry-After") != "15" {
					t.Errorf("Retry-After %q", got.Header().Get("Retry-After"))
				}
				if took := time.Since(start); took != c.took || min(woken, 1) != c.woken {
					t.Errorf("it took %s with %d wakes, want %s with %d", took, woken, c.took, c.woken)
				}
				if left, ok := h.room.Estimate("a:m", time.Now()); ok != (got.Code == 200 && c.woken == 1) {
					t.Errorf("the time of a start is %s, %t", left, ok)
				}
			})
		})
	}
}

// TestHeldTooLong: a set takes longer to start than a request may wait. The Retry-After of a later request beyond the
// limit is based on the last start.
func TestHeldTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolding(t, hold.Limits{Requests: 2, Bytes: 1 << 20, Time: 5 * time.Minute}, func(*holding, *models.Owner) {},
			func(req *http.Request) (*http.Response, error) { return says(req), nil })
		h.is(set("m", 0))
		if got, _ := h.send(t.Context(), "m", false, 1); got.Code != 503 || !strings.Contains(got.Body.String(), "the request waited for 5m0s") {
			t.Errorf("%d %s", got.Code, got.Body)
		}
		time.AfterFunc(80*time.Second, func() { h.is(set("m", 1)) })
		if got, _ := h.send(t.Context(), "m", false, 1); got.Code != 200 {
			t.Errorf("%d %s", got.Code, got.Body)
		}
		h.is(set("m", 0))
		ctx, cancel := context.WithCancel(t.Context())
		var first sync.WaitGroup
		first.Go(func() { h.send(ctx, "m", false, 1) })
		time.Sleep(20 * time.Second)
		if got, _ := h.send(t.Context(), "m", false, 1); got.Code != 503 || got.Header().Get("Retry-After") != "60" {
			t.Errorf("a second request for a model with half of two places: %d, Retry-After %q, want 60 s of the last 80", got.Code, got.Header().Get("Retry-After"))
		}
		cancel()
		first.Wait()
	})
}

// TestKeysShareTheQueue: a key that uses up its share of a model's queue leaves the rest to other keys.
func TestKeysShareTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const secretB = "sk-tenant-b-0123456789"
		h := newHolding(t, hold.Limits{Requests: 4, Bytes: 1 << 20, Time: time.Minute}, func(*holding, *models.Owner) {},
			func(req *http.Request) (*http.Response, error) { return says(req), nil })
		h.settings.IsOpen = false
		two := key(t, map[string]string{"key": secretB, "namespaces": "a"})
		two.Name = "tenant-b"
		h.keys.Set([]limit.Key{key(t, map[string]string{"key": secretA, "namespaces": "a"}), two})
		h.is(set("m", 0))
		time.AfterFunc(10*time.Second, func() { h.is(set("m", 1)) })
		send := func(secret string) *httptest.ResponseRecorder {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/completions", strings.NewReader(`{"model":"m"}`))
			req.Header.Set("Authorization", "Bearer "+secret)
			got := httptest.NewRecorder()
			h.ServeHTTP(got, req)
			return got
		}
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if got := send(secretA); got.Code != http.StatusOK {
				t.Errorf("the first request of the key gets %d %s", got.Code, got.Body)
			}
		})
		synctest.Wait()
		const want = "no replica of model \"m\" answers yet, and the queue of requests for the key is full: try again"
		if got := send(secretA); got.Code != http.StatusServiceUnavailable || !strings.Contains(got.Body.String(), strings.ReplaceAll(want, `"`, `\"`)) {
			t.Errorf("a second one gets %d %s", got.Code, got.Body)
		}
		if got := send(secretB); got.Code != http.StatusOK {
			t.Errorf("another key gets %d %s", got.Code, got.Body)
		}
		waiting.Wait()
	})
}

// TestHeldRequestsEndOnce plays random stories of two sets. The controller starts replicas soon, late or never. Sets
// stall, vanish and scale to zero again. Engines refuse and break, and clients leave. Every request must end in time
// with its answer or with one clear error, and leave nothing behind in the router.
func TestHeldRequestsEndOnce(t *testing.T) {
	ends := map[string]int{}
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) { heldStory(t, seed, ends) })
	}
	for _, end := range []string{"answer", "model_unavailable", "model_not_found", "engine_error", "client went", "broke in mid-answer"} {
		if ends[end] == 0 {
			t.Errorf("no request of the stories ended so: %s; the ends were %v", end, ends)
		}
	}
}

func heldStory(t *testing.T, seed uint64, ends map[string]int) {
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a story, not a secret
	limits := hold.Limits{Requests: 1 + random.IntN(12), Bytes: int64(500 + random.IntN(4000)), Time: time.Duration(1+random.IntN(240)) * time.Second}
	var mu sync.Mutex // for random and ends
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	var wokenOnce sync.Once
	h := newHolding(t, limits, func(h *holding, _ *models.Owner) {
		wokenOnce.Do(func() {
			if draw(4) > 0 {
				time.AfterFunc(time.Duration(draw(100))*time.Second, func() { h.is(randomSet(draw, "one"), randomSet(draw, "two")) })
			}
		})
	}, func(req *http.Request) (*http.Response, error) { return randomAnswer(draw, req) })
	h.is(set("one", -1), set("two", -1))
	for range draw(6) {
		time.AfterFunc(time.Duration(draw(300))*time.Second, func() {
			owners := []models.Owner{randomSet(draw, "one"), randomSet(draw, "two")}
			h.is(owners[draw(2):]...)
		})
	}
	story, end := context.WithTimeout(t.Context(), time.Hour) // so that a request without an end fails instead of hanging
	defer end()
	var isOver atomic.Bool
	var watch, asked sync.WaitGroup
	watch.Go(func() {
		for ; !isOver.Load(); time.Sleep(time.Second) {
			if requests, bytes := h.room.Held(); requests > limits.Requests || bytes > limits.Bytes {
				t.Errorf("seed %d: %d requests with %d bytes wait, above %+v", seed, requests, bytes, limits)
			}
		}
	})
	for range 25 {
		begins, size, isStream, model := time.Duration(draw(200))*time.Second, draw(800), draw(2) == 0, []string{"one", "two"}[draw(2)]
		ctx, cancel := context.WithCancel(story)
		if draw(5) == 0 {
			time.AfterFunc(begins+time.Duration(draw(120))*time.Second, cancel)
		}
		asked.Go(func() {
			defer cancel()
			time.Sleep(begins)
			start := time.Now()
			got, isBroken := h.send(ctx, model, isStream, size)
			end := endOf(got, isBroken, isStream, ctx.Err() != nil)
			if took := time.Since(start); took > limits.Time || strings.HasPrefix(end, "unclear") {
				t.Errorf("seed %d: a request ended after %s (at most %s) as %s", seed, took, limits.Time, end)
			}
			mu.Lock()
			defer mu.Unlock()
			ends[end]++
		})
	}
	asked.Wait()
	isOver.Store(true)
	watch.Wait()
	requests, bytes := h.room.Held()
	if loads := h.counters.Loads(); requests != 0 || bytes != 0 || h.buffered.Load() != 0 || len(loads) != 0 {
		t.Errorf("seed %d: %d requests, %d bytes, %d bytes of bodies and the loads %v are left", seed, requests, bytes, h.buffered.Load(), loads)
	}
}

// randomSet returns a set that has replicas, is starting, is stalled, or is scaled to zero.
func randomSet(draw func(int) int, name string) models.Owner {
	out := set(name, draw(4)-1)
	out.Problem.Stalled = len(out.Replicas) == 0 && draw(3) == 0
	return out
}

// randomAnswer returns a whole answer in most cases. Otherwise the engine refuses the connection or the request, or the
// answer breaks off.
func randomAnswer(draw func(int) int, req *http.Request) (*http.Response, error) {
	switch draw(8) {
	case 0:
		return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
	case 1:
		return nil, io.ErrUnexpectedEOF
	case 2:
		return reply(http.StatusBadRequest, "application/json", strings.NewReader(`{"error":{"message":"no","code":"engine_error"}}`)), nil
	case 3:
		broken := io.MultiReader(strings.NewReader("data: {}\n\n"), iotest.ErrReader(io.ErrUnexpectedEOF))
		return reply(http.StatusOK, "text/event-stream", broken), nil
	}
	return says(req), nil
}

// endOf returns how a request ended: with the answer, with the code of the one error, or unclear.
func endOf(got *httptest.ResponseRecorder, isBroken, isStream, hasGone bool) string {
	text := strings.ReplaceAll(got.Body.String(), ": the model is starting\n\n", "")
	switch {
	case hasGone:
		return "client went"
	case isBroken:
		return "broke in mid-answer"
	case got.Code == http.StatusOK && (isStream && text == wholeStream || !isStream && text == `{"choices":[]}`):
		return "answer"
	case got.Code == http.StatusOK:
		event, isEvent := strings.CutPrefix(text, "event: error\ndata: ")
		if code := codeOf(event); isStream && isEvent && code != "" && strings.Count(text, "data:") == 1 {
			return code
		}
	case codeOf(text) != "":
		return codeOf(text)
	}
	return fmt.Sprintf("unclear: %d %q", got.Code, got.Body)
}
