// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package extproc

import (
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/router"
	"github.com/modelberth/modelberth/pkg/router/balance"
	"github.com/modelberth/modelberth/pkg/router/limit"
	"github.com/modelberth/modelberth/pkg/router/models"
)

// patience is the longest time that a test waits for anything.
const patience = 20 * time.Second

const (
	keyA      = "sk-tenant-a-0123456789"
	keyB      = "sk-tenant-b-0123456789"
	authority = "chat-inferencepool-epp.team-a.svc:9002"
	question  = `{"model":"chat","messages":[{"role":"user","content":"hello"}]}`
)

type directory struct{ table *models.Table }

func (d directory) Models() *models.Table { return d.table }

func (d directory) Next() (*models.Table, <-chan struct{}) { return d.table, nil }

// asleep never starts a replica.
type asleep struct{}

func (asleep) Wake(*models.Owner) {}

// world is a router behind a gateway.
type world struct {
	counters *balance.Counters
	server   *grpc.Server
	address  string
	picker   *Server
}

func set(namespace, name string, replicas ...string) models.Owner {
	return models.Owner{
		Namespace: namespace, Name: name, Kind: models.KindSet, Created: time.Unix(1, 0), Names: []string{name, "org/" + name},
		Replicas: replicas, IsWakeable: true,
	}
}

func key(t *testing.T, name string, fields map[string]string) limit.Key {
	t.Helper()
	data := map[string][]byte{}
	for field, value := range fields {
		data[field] = []byte(value)
	}
	out, err := limit.Parse(name, data)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// begin starts a router with two tenants. Each has a set of the name chat, and that of team-b is the older one.
func begin(t *testing.T, change func(*router.Settings), owners ...models.Owner) *world {
	t.Helper()
	settings := router.Defaults()
	if change != nil {
		change(&settings)
	}
	metrics, err := router.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	known := limit.NewKeys(1)
	known.Set([]limit.Key{
		key(t, "tenant-a", map[string]string{"key": keyA, "namespaces": "team-a", "tokensPerMinute": "100"}),
		key(t, "tenant-b", map[string]string{"key": keyB, "namespaces": "team-b"}),
	})
	if owners == nil {
		older := set("team-b", "chat", "10.0.0.9:5000")
		older.Created = time.Unix(0, 0)
		owners = []models.Owner{set("team-a", "chat", "10.0.0.1:5000"), older, set("team-a", "other", "10.0.0.2:5000")}
	}
	w := &world{counters: &balance.Counters{}}
	front := router.New(settings, router.Parts{
		Directory: directory{models.New(owners)}, Keys: known, Counters: w.counters, Metrics: metrics,
		Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}, Waker: asleep{},
	})
	w.picker = New(Settings{MaxStreams: 100, BodyTimeout: patience, Deadline: settings.Deadline}, front, slog.New(slog.DiscardHandler), clock.RealClock{})
	w.picker.SetReady(true)
	w.server = grpc.NewServer()
	w.picker.Register(w.server)
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.address = listener.Addr().String()
	done := make(chan error, 1)
	go func() { done <- w.server.Serve(listener) }()
	t.Cleanup(func() {
		w.server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) dial(t *testing.T, authority string) *grpc.ClientConn {
	t.Helper()
	out, err := grpc.NewClient("passthrough:///"+w.address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(authority))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	return out
}

func (w *world) envoy(t *testing.T, authority string) *envoy {
	t.Helper()
	return newEnvoy(t, extprocv3.NewExternalProcessorClient(w.dial(t, authority)))
}

func bearer(key string) map[string]string {
	return map[string]string{"authorization": "Bearer " + key, "content-type": "application/json"}
}

// settled waits for all streams, and reports what they left behind.
func (w *world) settled(t *testing.T) {
	t.Helper()
	w.server.GracefulStop()
	if diff := cmp.Diff(map[string]balance.Load{}, w.counters.Loads()); diff != "" {
		t.Errorf("work of ended requests is left (-want +got):\n%s", diff)
	}
	if left := w.picker.streams.Load(); left != 0 {
		t.Errorf("%d streams still count", left)
	}
}

func TestForwards(t *testing.T) {
	cases := []struct {
		reason, path, authority, body string
		change                        func(*envoy)
		want                          string
	}{
		{"the replica of the pool's set, although an older set has the name", "/v1/chat/completions", authority, question, nil, "10.0.0.1:5000"},
		{"the authority of Istio's clusters", "/v1/chat/completions", "outbound|9002||chat-inferencepool-epp.team-a.svc.cluster.local", question, nil, "10.0.0.1:5000"},
		{"the path that selects the set", "/team-a/chat/v1/chat/completions", authority, question, nil, "10.0.0.1:5000"},
		{"a query is for nobody", "/v1/chat/completions?x=1", authority, question, nil, "10.0.0.1:5000"},
		{"the name with its namespace", "/v1/completions", authority, `{"model":"team-a:chat","prompt":"hello"}`, nil, "10.0.0.1:5000"},
		{"a body with trailers", "/v1/chat/completions", authority, question, func(e *envoy) { e.trailers = true }, "10.0.0.1:5000"},
		{"a body larger than a message", "/v1/chat/completions", authority, `{"model":"chat","messages":"` + strings.Repeat("x", 300<<10) + `"}`, func(e *envoy) { e.chunk = 16 << 10 }, "10.0.0.1:5000"},
		{"the subset that the gateway reaches", "/v1/chat/completions", authority, question, func(e *envoy) { e.subset = []any{"10.0.0.8:5000", "10.0.0.1:5000"} }, "10.0.0.1:5000"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			w := begin(t, nil)
			gateway := w.envoy(t, c.authority)
			if c.change != nil {
				c.change(gateway)
			}
			headers := bearer(keyA)
			headers["x-gateway-destination-endpoint"] = "169.254.169.254:80" // a client must not choose
			headers["cookie"] = "secret"
			up, down := gateway.do("POST", c.path, headers, c.body, ok(`{"usage":{"prompt_tokens":3,"completion_tokens":4}}`))
			if up == nil {
				t.Fatalf("the answer is %d: %s", down.status, down.body)
			}
			for _, name := range []string{"authorization", "cookie"} {
				if up.headers[name] != "" {
					t.Errorf("the replica gets the header %s", name)
				}
			}
			var got struct{ Model, Cache_Salt string } //nolint:revive // the name in the body
			if err := json.Unmarshal([]byte(up.body), &got); err != nil || up.replica != c.want || got.Model != "chat" || got.Cache_Salt == "" {
				t.Errorf("replica %s, body %.200s (%v)", up.replica, up.body, err)
			}
			w.settled(t)
		})
	}
}

func TestRefusals(t *testing.T) {
	post, path := "POST", "/v1/chat/completions"
	cases := []struct {
		reason, method, path, authority, key, body string
		change                                     func(*envoy)
		status                                     int
		code                                       string
	}{
		{"no key", post, path, authority, "", question, nil, 401, "invalid_api_key"},
		{"a key of another namespace", post, path, authority, keyB, question, nil, 404, "model_not_found"},
		{"a model behind another pool", post, path, authority, keyA, `{"model":"other"}`, nil, 404, "model_not_found"},
		{"a namespace of another tenant", post, path, authority, keyA, `{"model":"team-b:chat"}`, nil, 404, "model_not_found"},
		{"the pool of another tenant", post, path, "chat-inferencepool-epp.team-b.svc:9002", keyA, question, nil, 404, "model_not_found"},
		{"no pool in the authority", post, path, "modelberth-router.modelberth-system.svc:9002", keyA, question, nil, 503, "unknown_pool"},
		{"a pool without a set", post, path, "gone-inferencepool-epp.team-a.svc:9002", keyA, question, nil, 404, "model_not_found"},
		{"a body in another mode", post, path, authority, keyA, question, func(e *envoy) { e.requestMode = modev3.ProcessingMode_BUFFERED }, 503, "unknown_pool"},
		{"no replica that the gateway reaches", post, path, authority, keyA, question, func(e *envoy) { e.subset = []any{"10.0.0.9:5000"} }, 503, "model_unavailable"},
		{"an empty subset", post, path, authority, keyA, question, func(e *envoy) { e.subset = []any{} }, 503, "model_unavailable"},
		{"another path", post, "/v1/load_lora_adapter", authority, keyA, question, nil, 404, "unknown_route"},
		{"the path of another set", post, "/team-b/chat/v1/chat/completions", authority, keyA, question, nil, 404, "unknown_route"},
		{"another method", "GET", path, authority, keyA, "", nil, 405, "unknown_route"},
		{"no JSON", post, path, authority, keyA, "hello", nil, 400, "invalid_body"},
		{"no body", post, path, authority, keyA, "", nil, 400, "invalid_body"},
		{"a large body", post, path, authority, keyA, `{"model":"chat","prompt":"` + strings.Repeat("x", 5000) + `"}`, func(e *envoy) { e.chunk = 1000 }, 413, "body_too_large"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			w := begin(t, func(s *router.Settings) { s.MaxBody = 4096 })
			gateway := w.envoy(t, c.authority)
			if c.change != nil {
				c.change(gateway)
			}
			headers := bearer(c.key)
			if c.key == "" {
				headers = nil
			}
			up, down := gateway.do(c.method, c.path, headers, c.body, engine{})
			if up != nil {
				t.Fatalf("the request reaches %s", up.replica)
			}
			var body struct {
				Error struct{ Message, Type, Code string }
			}
			if err := json.Unmarshal([]byte(down.body), &body); err != nil || body.Error.Type == "" || body.Error.Message == "" {
				t.Errorf("the body is %s (%v)", down.body, err)
			}
			if down.status != c.status || body.Error.Code != c.code || down.headers["content-type"] != "application/json" {
				t.Errorf("the answer is %d %s, want %d %s: %s", down.status, body.Error.Code, c.status, c.code, down.body)
			}
			w.settled(t)
		})
	}
}

func TestTooManyStreams(t *testing.T) {
	w := begin(t, nil)
	w.picker.streams.Add(100) // as many as the settings allow
	up, down := w.envoy(t, authority).do("POST", "/v1/chat/completions", bearer(keyA), question, engine{})
	if up != nil || down.status != 503 || !strings.Contains(down.body, "router_overloaded") {
		t.Errorf("the answer is %d %s", down.status, down.body)
	}
	w.picker.streams.Add(100)
	stream, cancel := w.silent(t)
	defer cancel()
	if message, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("far above the limit, a stream without a request ends with %v, %v", message, err)
	}
	w.picker.streams.Add(-200)
	w.settled(t)
}

// silent opens a stream without a message.
func (w *world) silent(t *testing.T) (processStream, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	stream, err := extprocv3.NewExternalProcessorClient(w.dial(t, authority)).Process(ctx)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	return stream, cancel
}

// TestSilentStream: a stream without a request ends long before the deadline of requests.
func TestSilentStream(t *testing.T) {
	w := begin(t, nil)
	w.picker.firstTimeout = time.Millisecond
	stream, cancel := w.silent(t)
	defer cancel()
	message, err := stream.Recv()
	if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "the gateway sent no request") {
		t.Errorf("the stream ends with %v, %v", message, err)
	}
	w.settled(t)
}

func TestListsThePool(t *testing.T) {
	w := begin(t, nil)
	up, down := w.envoy(t, authority).do("GET", "/team-a/chat/v1/models", bearer(keyA), "", engine{})
	var list struct{ Data []struct{ ID string } }
	if err := json.Unmarshal([]byte(down.body), &list); err != nil || up != nil || down.status != 200 {
		t.Fatalf("the answer is %d %s (%v)", down.status, down.body, err)
	}
	if diff := cmp.Diff([]struct{ ID string }{{"chat"}, {"org/chat"}}, list.Data); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAnswers(t *testing.T) {
	stream := engine{
		status: "200", headers: map[string]string{"content-type": "text/event-stream", "set-cookie": "engine", "date": "today"},
		body: `data: {"choices":[{"delta":{"content":"hi"}}]}` + "\n\n" + `data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":500}}` + "\n\ndata: [DONE]\n\n",
	}
	want := downstream{
		status: 200, headers: map[string]string{"content-type": "text/event-stream", "date": "today"},
		body: `data: {"choices":[{"delta":{"content":"hi"}}]}` + "\n\ndata: [DONE]\n\n",
	}
	asked := `{"model":"chat","stream":true,"messages":[{"role":"user","content":"hello"}]}`
	for _, mode := range []modev3.ProcessingMode_BodySendMode{modev3.ProcessingMode_FULL_DUPLEX_STREAMED, modev3.ProcessingMode_STREAMED} {
		t.Run(mode.String(), func(t *testing.T) {
			w := begin(t, nil)
			gateway := w.envoy(t, authority)
			gateway.responseMode = mode
			up, down := gateway.do("POST", "/v1/chat/completions", bearer(keyA), asked, stream)
			if up == nil || !strings.Contains(up.body, `"include_usage":true`) {
				t.Fatalf("the replica gets %+v", up)
			}
			if diff := cmp.Diff(want, down, cmp.AllowUnexported(downstream{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			up, down = gateway.do("POST", "/v1/chat/completions", bearer(keyA), question, ok("{}"))
			if up != nil || down.status != 429 || down.headers["retry-after"] == "" {
				t.Errorf("after an answer of more than its limit, the key gets %d %s", down.status, down.body)
			}
			w.settled(t)
		})
	}
}

// TestLeavesWhileWaiting ends a stream by closing only the gateway's side, as Envoy does if its client has gone.
func TestLeavesWhileWaiting(t *testing.T) {
	w := begin(t, func(s *router.Settings) { s.Hold.Requests = 8 }, set("team-a", "chat"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := extprocv3.NewExternalProcessorClient(w.dial(t, authority)).Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	body := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
		RequestBody: &extprocv3.HttpBody{Body: []byte(question), EndOfStream: true},
	}}
	for _, message := range []*extprocv3.ProcessingRequest{requestHeaders("POST", "/v1/chat/completions", bearer(keyA), false), body} {
		if err := stream.Send(message); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if message, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("the stream ends with %v, %v: a clean end would send the request to any replica", message, err)
	}
	w.settled(t)
}

// TestAnswersOfTheGateway: the gateway answers a request before it has a replica, because another filter refuses it or its
// body is too large or too slow. The client gets this answer, with its own status.
func TestAnswersOfTheGateway(t *testing.T) {
	piece := func(text string, isEnd bool) *extprocv3.ProcessingRequest {
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
			RequestBody: &extprocv3.HttpBody{Body: []byte(text), EndOfStream: isEnd},
		}}
	}
	head := func() *extprocv3.ProcessingRequest {
		return requestHeaders("POST", "/v1/chat/completions", bearer(keyA), false)
	}
	refused := engine{status: "401", headers: map[string]string{"set-cookie": "login=1", "www-authenticate": "Basic"}, body: "no valid session"}
	for _, c := range []struct {
		reason   string
		messages func() []*extprocv3.ProcessingRequest
		answer   engine
		trailers bool
	}{
		{"an earlier filter refuses the request", func() []*extprocv3.ProcessingRequest { return nil }, refused, false},
		{"without a body", func() []*extprocv3.ProcessingRequest { return nil }, engine{status: "429", headers: map[string]string{"x": "y"}}, false},
		{"with trailers", func() []*extprocv3.ProcessingRequest { return nil }, refused, true},
		{"a large answer", func() []*extprocv3.ProcessingRequest { return nil }, engine{status: "400", headers: map[string]string{"x": "y"}, body: strings.Repeat("x", 300<<10)}, false},
		{"before the body", func() []*extprocv3.ProcessingRequest { return []*extprocv3.ProcessingRequest{head()} }, refused, false},
		{"in mid-body", func() []*extprocv3.ProcessingRequest {
			return []*extprocv3.ProcessingRequest{head(), piece(question[:9], false)}
		}, engine{status: "413", headers: map[string]string{"x": "y"}, body: "too large"}, false},
		{"while the request waits for a replica", func() []*extprocv3.ProcessingRequest {
			return []*extprocv3.ProcessingRequest{head(), piece(question, true)}
		}, engine{status: "504", headers: map[string]string{"x": "y"}, body: "timeout"}, true},
	} {
		for _, mode := range []modev3.ProcessingMode_BodySendMode{modev3.ProcessingMode_FULL_DUPLEX_STREAMED, modev3.ProcessingMode_STREAMED} {
			t.Run(c.reason+" "+mode.String(), func(t *testing.T) {
				w := begin(t, func(s *router.Settings) { s.Hold.Requests = 8 }, set("team-a", "chat"))
				gateway := w.envoy(t, authority)
				gateway.responseMode, gateway.answerTrailers, gateway.chunk = mode, c.trailers, 60<<10
				got, err := gateway.refuse(c.answer, c.messages()...)
				if err != nil {
					t.Fatalf("Envoy would fail the request: %v", err)
				}
				code, _ := strconv.Atoi(c.answer.status)
				want := downstream{status: code, headers: c.answer.headers, body: c.answer.body}
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(downstream{})); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				w.settled(t)
			})
		}
	}
}

func TestHealth(t *testing.T) {
	w := begin(t, nil)
	client := healthv1.NewHealthClient(w.dial(t, authority))
	for _, isReady := range []bool{true, false} {
		w.picker.SetReady(isReady)
		for _, service := range []string{"", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"} {
			answer, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
			if err != nil {
				t.Fatal(err)
			}
			if want := isReady || service == "liveness"; (answer.GetStatus() == healthv1.HealthCheckResponse_SERVING) != want {
				t.Errorf("ready %v: %q is %s", isReady, service, answer.GetStatus())
			}
		}
	}
}

// TestLeavesNothingBehind sends random sequences of messages, most of them wrong, on streams that end at random moments.
func TestLeavesNothingBehind(t *testing.T) {
	w := begin(t, func(s *router.Settings) { s.Hold.Requests, s.BodyBudget = 4, 6*s.MaxBody })
	client := extprocv3.NewExternalProcessorClient(w.dial(t, authority))
	var wait sync.WaitGroup
	for seed := range uint64(300) {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a reproducible sequence
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(100))*time.Millisecond)
			defer cancel()
			stream, err := client.Process(ctx)
			if err != nil {
				return // it ended before it began
			}
			for range random.IntN(9) {
				if stream.Send(anyMessage(random)) != nil {
					break
				}
				if random.IntN(4) == 0 {
					_, _ = stream.Recv()
				}
			}
			if random.IntN(2) == 0 {
				_ = stream.CloseSend()
			}
		})
	}
	wait.Wait()
	w.settled(t)
}

// anyMessage returns a message. The right order is the most likely one only for the beginning of a request.
func anyMessage(random *rand.Rand) *extprocv3.ProcessingRequest {
	head := &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: ":status", RawValue: []byte("200")}}}}
	body := &extprocv3.HttpBody{Body: []byte(question), EndOfStream: random.IntN(2) == 0}
	switch random.IntN(9) {
	case 0, 1, 2:
		return requestHeaders("POST", "/v1/chat/completions", bearer([]string{keyA, keyB}[random.IntN(2)]), random.IntN(9) == 0)
	case 3, 4, 5:
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: body}}
	case 6:
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}}
	case 7:
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: head}}
	default:
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: body}}
	}
}
