// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/modelberth/modelberth/pkg/router"
	"github.com/modelberth/modelberth/pkg/router/models"
)

// figure is a MetricSpec or a MetricValue: both have a name, a whole number and a number, in the fields 1 to 3.
type figure struct {
	name  string
	whole uint64
	exact float64
}

// figures reads an answer with such messages in field 1.
func figures(t *testing.T, answer []byte) []figure {
	t.Helper()
	var out []figure
	for len(answer) > 0 {
		_, _, n := protowire.ConsumeTag(answer)
		inner, m := protowire.ConsumeBytes(answer[max(n, 0):])
		if n < 0 || m < 0 {
			t.Fatalf("the answer %x cannot be read", answer)
		}
		answer = answer[n+m:]
		var f figure
		for len(inner) > 0 {
			number, kind, n := protowire.ConsumeTag(inner)
			inner = inner[n:]
			switch {
			case number == 1 && kind == protowire.BytesType:
				f.name, n = protowire.ConsumeString(inner)
			case number == 2 && kind == protowire.VarintType:
				f.whole, n = protowire.ConsumeVarint(inner)
			case number == 3 && kind == protowire.Fixed64Type:
				var bits uint64
				bits, n = protowire.ConsumeFixed64(inner)
				f.exact = math.Float64frombits(bits)
			default:
				t.Fatalf("field %d has type %d", number, kind)
			}
			inner = inner[n:]
		}
		out = append(out, f)
	}
	return out
}

// isTrue reads an IsActiveResponse.
func isTrue(answer []byte) bool { return len(answer) == 2 && answer[0] == 1<<3 && answer[1] == 1 }

func TestQuestions(t *testing.T) {
	w := begin(t, 1)
	w.routers[0].demands.set("team-a:chat", router.Demand{Requests: 7, Tokens: 4100})
	w.routers[0].demands.set("team-b:chat", router.Demand{Requests: 1000, Tokens: 1_000_000})
	cases := []struct {
		reason, namespace string
		change            map[string]string
		spec, value       string
	}{
		{"requests", "team-a", nil, "[{RequestsInFlight 20 20}]", "[{RequestsInFlight 7 7}]"},
		{"tokens", "team-a", map[string]string{"metric": "TokensInFlight", "target": "2048"}, "[{TokensInFlight 2048 2048}]", "[{TokensInFlight 4100 4100}]"},
		{"a fraction; clients of old versions get the next whole number", "team-a", map[string]string{"target": "1.5"}, "[{RequestsInFlight 2 1.5}]", "[{RequestsInFlight 7 7}]"},
		{"the namespace of the ScaledObject, by name", "team-a", map[string]string{"namespace": "team-a"}, "[{RequestsInFlight 20 20}]", "[{RequestsInFlight 7 7}]"},
		{"the set of the same name in another namespace", "team-b", nil, "[{RequestsInFlight 20 20}]", "[{RequestsInFlight 1000 1000}]"},
		{"another tenant's set", "team-a", map[string]string{"namespace": "team-b"}, "InvalidArgument: namespace in the metadata of the trigger is \"team-b\": it must be the namespace of the ScaledObject, team-a", ""},
		{"another tenant's set by its ID", "team-a", map[string]string{"set": "team-b:chat"}, "NotFound: there is no InferenceSet \"team-b:chat\" in namespace team-a", ""},
		{"the ID of an own set that reads like another tenant's", "team-a:x", nil, "NotFound: there is no InferenceSet \"chat\" in namespace team-a:x", ""},
		{"no namespace", "", nil, "InvalidArgument: the request has no namespace of a ScaledObject", ""},
		{"no set", "team-a", map[string]string{"set": ""}, "InvalidArgument: the metadata of the trigger lacks set: it must be the name of an InferenceSet", ""},
		{"a set that does not exist", "team-a", map[string]string{"set": "gone"}, "NotFound: there is no InferenceSet \"gone\" in namespace team-a", ""},
		{"no metric", "team-a", map[string]string{"metric": ""}, "InvalidArgument: the metadata of the trigger lacks metric: it must be RequestsInFlight or TokensInFlight", ""},
		{"another metric", "team-a", map[string]string{"metric": "requestsInFlight"}, "InvalidArgument: metric in the metadata of the trigger is \"requestsInFlight\": it must be RequestsInFlight or TokensInFlight", ""},
		{"no target", "team-a", map[string]string{"target": ""}, "InvalidArgument: the metadata of the trigger lacks target: it must be a number from 0.001 to 1000000000 for each replica", ""},
		{"a target of zero, which would mean endless replicas", "team-a", map[string]string{"target": "0"}, "InvalidArgument: target in the metadata of the trigger is \"0\": it must be a number from 0.001 to 1000000000 for each replica", ""},
		{"no number", "team-a", map[string]string{"target": "NaN"}, "InvalidArgument: target in the metadata of the trigger is \"NaN\": it must be a number from 0.001 to 1000000000 for each replica", ""},
		{"an endless target", "team-a", map[string]string{"target": "Inf"}, "InvalidArgument: target in the metadata of the trigger is \"Inf\": it must be a number from 0.001 to 1000000000 for each replica", ""},
		{"a scope of nobody", "team-a", map[string]string{"scope": "cluster"}, "InvalidArgument: scope in the metadata of the trigger is \"cluster\": it must be absent", ""},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			ref := refBytes(c.namespace, usual(c.change))
			answer, err := w.routers[0].call(t, "GetMetricSpec", ref)
			if got := said(t, answer, err); got != c.spec {
				t.Errorf("the spec is %s, want %s", got, c.spec)
			}
			want := c.value
			if want == "" {
				want = c.spec
			}
			answer, err = w.routers[0].call(t, "GetMetrics", metricsBytes(ref, usual(c.change)["metric"]))
			if got := said(t, answer, err); got != want {
				t.Errorf("the value is %s, want %s", got, want)
			}
			_, err = w.routers[0].call(t, "IsActive", ref)
			if want := status.Code(err); want.String() != strings.SplitN(c.spec, ":", 2)[0] && err != nil {
				t.Errorf("IsActive fails with %v", err)
			}
		})
	}
}

// said returns an answer or an error as text.
func said(t *testing.T, answer []byte, err error) string {
	t.Helper()
	if err != nil {
		return status.Code(err).String() + ": " + status.Convert(err).Message()
	}
	return fmt.Sprint(figures(t, answer))
}

func TestOtherMetricName(t *testing.T) {
	w := begin(t, 1)
	answer, err := w.routers[0].call(t, "GetMetrics", metricsBytes(refBytes("team-a", usual(nil)), "TokensInFlight"))
	want := "InvalidArgument: metricName is \"TokensInFlight\": the metric of this ScaledObject is RequestsInFlight"
	if got := said(t, answer, err); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestNotReady(t *testing.T) {
	w := begin(t, 1)
	w.isReady = false
	answer, err := w.routers[0].call(t, "IsActive", refBytes("team-a", usual(nil)))
	if got := said(t, answer, err); got != "Unavailable: the router is starting" {
		t.Errorf("got %s", got)
	}

	// Its own count needs no objects of the cluster, so a starting router delays no sum.
	w.routers[0].demands.set("team-a:chat", router.Demand{Requests: 1})
	w.store()
	answer, err = w.routers[0].call(t, "IsActive", refBytes("team-a", usual(map[string]string{"scope": scopeRouter})))
	if err != nil || !isTrue(answer) {
		t.Errorf("its own part is %x, %v", answer, err)
	}
}

// TestPeerOnAHangingNode: a router that refuses a connection has no requests. One that cannot be reached has an unknown
// number at first, and counts as gone after a while.
func TestPeerOnAHangingNode(t *testing.T) {
	hangs, refuses := errors.New("i/o timeout"), &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	at := time.Unix(1_800_000_000, 0)
	for _, tc := range []struct {
		reason string
		dials  []error // a second apart
		after  time.Duration
		want   bool
	}{
		{"never dialed", nil, time.Hour, false},
		{"refused", []error{refuses}, 0, true},
		{"hangs", []error{hangs}, silentFor - time.Second, false},
		{"hangs for long", []error{hangs, hangs}, silentFor, true},
		{"hung once", []error{hangs, nil}, time.Hour, false},
		{"hangs again", []error{hangs, nil, hangs}, silentFor, false},
		{"was refused, and hangs", []error{refuses, hangs}, 0, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			p := &peer{}
			for i, err := range tc.dials {
				p.dialed(at.Add(time.Duration(i)*time.Second), err)
			}
			if got := p.hasNone(at.Add(tc.after)); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

func TestUnimplemented(t *testing.T) {
	w := begin(t, 1)
	if _, err := w.routers[0].call(t, "StreamMetricSpec", refBytes("team-a", usual(nil))); status.Code(err) != codes.Unimplemented {
		t.Errorf("KEDA expects Unimplemented, not %v", err)
	}
}

func TestSumOfRouters(t *testing.T) {
	w := begin(t, 3)
	for i, requests := range []int{3, 0, 40} {
		w.routers[i].demands.set("team-a:chat", router.Demand{Requests: requests, Tokens: requests * 100})
	}
	ref := refBytes("team-a", usual(nil))
	for i, asked := range w.routers {
		answer, err := asked.call(t, "GetMetrics", metricsBytes(ref, "RequestsInFlight"))
		if got := said(t, answer, err); got != "[{RequestsInFlight 43 43}]" {
			t.Errorf("router %d answers %s", i, got)
		}
		active, err := asked.call(t, "IsActive", ref)
		if err != nil || !isTrue(active) {
			t.Errorf("router %d is active: %x, %v", i, active, err)
		}
	}
	w.routers[0].demands.set("team-a:chat", router.Demand{})
	w.routers[2].demands.set("team-a:chat", router.Demand{})
	active, err := w.routers[1].call(t, "IsActive", ref)
	if err != nil || isTrue(active) {
		t.Errorf("a set without requests is active: %x, %v", active, err)
	}
}

func TestRouterThatEnded(t *testing.T) {
	w := begin(t, 2)
	w.routers[0].demands.set("team-a:chat", router.Demand{Requests: 3})
	w.hosts = append(w.hosts, "127.0.0.9") // nothing listens there
	answer, err := w.routers[0].call(t, "GetMetrics", metricsBytes(refBytes("team-a", usual(nil)), "RequestsInFlight"))
	if got := said(t, answer, err); got != "[{RequestsInFlight 3 3}]" {
		t.Errorf("got %s", got)
	}
}

// TestSilentRouter: an unknown part of the sum is not zero. KEDA keeps the number of replicas after an error.
func TestSilentRouter(t *testing.T) {
	w := begin(t, 2)
	var config net.ListenConfig
	silent, err := config.Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.3", w.port)) // it never answers
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	w.hosts = append(w.hosts, "127.0.0.3")
	ref := refBytes("team-a", usual(nil))
	for _, method := range []string{"GetMetrics", "IsActive"} {
		in := ref
		if method == "GetMetrics" {
			in = metricsBytes(ref, "RequestsInFlight")
		}
		if answer, err := w.routers[0].call(t, method, in); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "127.0.0.3") {
			t.Errorf("%s answers %x, %v", method, answer, err)
		}
	}
	w.routers[1].demands.set("team-a:chat", router.Demand{Requests: 1})
	if active, err := w.routers[0].call(t, "IsActive", ref); err != nil || !isTrue(active) {
		t.Errorf("one known request is enough: %x, %v", active, err)
	}
}

func TestUnknownRouters(t *testing.T) {
	w := begin(t, 1)
	peers, err := NewPeers("elsewhere:"+w.port, nil, w.clock)
	if err != nil {
		t.Fatal(err)
	}
	peers.lookUp = func(context.Context, string) ([]string, error) { return nil, errors.New("no such host") }
	w.routers[0].scaler.others = peers
	answer, err := w.routers[0].call(t, "IsActive", refBytes("team-a", usual(nil)))
	if got := said(t, answer, err); got != "Unavailable: the other routers cannot be found: no such host" {
		t.Errorf("got %s", got)
	}
}

func TestActive(t *testing.T) {
	cases := []struct {
		reason string
		demand router.Demand
		woken  time.Duration
		want   bool
	}{
		{"nothing", router.Demand{}, 0, false},
		{"a request at a replica", router.Demand{Requests: 1}, 0, true},
		{"a request that waits", router.Demand{Requests: 1, Held: 1}, 0, true},
		{"a request for an adapter that a replica loads: the replica stays", router.Demand{Loading: 1}, 0, true},
		{"a request that ended between two polls", router.Demand{Last: time.Unix(1_800_000_000, 0).Add(-119 * time.Second)}, 0, true},
		{"a request that ended earlier", router.Demand{Last: time.Unix(1_800_000_000, 0).Add(-121 * time.Second)}, 0, false},
		{"another router's wake", router.Demand{}, 59 * time.Second, true},
		{"an old wake", router.Demand{}, 61 * time.Second, false},
		{"a wake of a router whose clock is ahead", router.Demand{}, -30 * time.Second, true},
		{"a wake in the far future, which would keep a replica for good", router.Demand{}, -time.Hour, false},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			w := begin(t, 1)
			set := chatOf("team-a")
			if c.woken != 0 {
				set.Woken = w.clock.Now().Add(-c.woken)
			}
			w.store(set)
			w.routers[0].demands.set("team-a:chat", c.demand)
			active, err := w.routers[0].call(t, "IsActive", refBytes("team-a", usual(nil)))
			if err != nil || isTrue(active) != c.want {
				t.Errorf("active is %x, %v, want %v", active, err, c.want)
			}
		})
	}
}

// open opens a stream. The channel has each message, and is closed at the end; the function returns the error.
func (o *one) open(t *testing.T) (messages <-chan bool, ended func() error) {
	t.Helper()
	stream, err := o.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/externalscaler.ExternalScaler/StreamIsActive", grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(refBytes("team-a", usual(nil))); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	out := make(chan bool)
	var last error
	go func() {
		defer close(out)
		for {
			var answer []byte
			if last = stream.RecvMsg(&answer); last != nil {
				return
			}
			out <- isTrue(answer)
		}
	}()
	return out, func() error {
		for range out { // until the end
		}
		return last
	}
}

func expect(t *testing.T, messages <-chan bool) {
	t.Helper()
	select {
	case isActive, ok := <-messages:
		if !ok || !isActive {
			t.Fatalf("the message is %v, %v", isActive, ok)
		}
	case <-time.After(patience):
		t.Fatal("no message")
	}
}

func quiet(t *testing.T, messages <-chan bool) {
	t.Helper()
	select {
	case isActive := <-messages:
		t.Fatalf("the message %v comes unexpectedly", isActive)
	case <-time.After(50 * time.Millisecond):
	}
}

// woken is the set with a wake at the present time.
func (w *world) woken() models.Owner {
	out := chatOf("team-a")
	out.Woken = w.clock.Now()
	return out
}

func TestStream(t *testing.T) {
	w := begin(t, 1)
	messages, ended := w.routers[0].open(t)
	quiet(t, messages)
	other := chatOf("team-b")
	other.Woken = w.clock.Now()
	w.store(chatOf("team-a"), other)
	quiet(t, messages) // another tenant's wake
	w.store(w.woken())
	expect(t, messages) // at once, without the clock
	w.store(w.woken())
	quiet(t, messages) // each change of the cluster would repeat it
	w.clock.Step(repeat)
	expect(t, messages)
	w.clock.Step(wakeFor)
	quiet(t, messages) // and no message says that the set is idle
	w.store(w.woken())
	expect(t, messages)
	w.routers[0].scaler.End()
	if err := ended(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v: KEDA waits longer after each end that is not clean", err)
	}
}

// TestStreamWithoutWake: the write of the annotation fails, and the request waits all the same.
func TestStreamWithoutWake(t *testing.T) {
	w := begin(t, 1)
	w.routers[0].demands.set("team-a:chat", router.Demand{Requests: 1, Held: 1})
	messages, _ := w.routers[0].open(t)
	expect(t, messages)
	w.routers[0].demands.set("team-a:chat", router.Demand{Requests: 1})
	w.clock.Step(repeat)
	quiet(t, messages)
}

func TestStreamOfDeletedSet(t *testing.T) {
	w := begin(t, 1)
	_, ended := w.routers[0].open(t)
	w.store(chatOf("team-b"))
	if err := ended(); status.Code(err) != codes.NotFound {
		t.Errorf("the stream ends with %v", err)
	}
}

// broken panics.
type broken struct{}

func (broken) Demand(string) router.Demand { panic("broken") }

func TestPanic(t *testing.T) {
	w := begin(t, 1)
	w.routers[0].scaler.demands = broken{}
	if _, err := w.routers[0].call(t, "IsActive", refBytes("team-a", usual(nil))); status.Code(err) != codes.Internal {
		t.Errorf("got %v", err)
	}
	if _, ended := w.routers[0].open(t); status.Code(ended()) != codes.Internal {
		t.Error("the stream does not end with an error")
	}
	if _, err := w.routers[0].call(t, "GetMetricSpec", refBytes("team-a", usual(nil))); err != nil {
		t.Errorf("the server ended: %v", err)
	}
}

func TestNonsense(t *testing.T) {
	w := begin(t, 1)
	for _, method := range []string{"IsActive", "GetMetricSpec", "GetMetrics"} {
		for _, in := range [][]byte{{0xff, 0xff}, {}, []byte("hello")} {
			if answer, err := w.routers[0].call(t, method, in); err == nil {
				t.Errorf("%s of %x answers %x", method, in, answer)
			}
		}
	}
}
