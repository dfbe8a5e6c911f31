// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// busyEngine stands in for vLLM and its metrics under a constant load of equal requests.
type busyEngine struct {
	clock   clock.PassiveClock
	started time.Time
	// cacheTokens is the size of the KV cache.
	cacheTokens int
	// running requests have input and output tokens each. perToken is the time between two tokens of one of them.
	running, input, output float64
	perToken               time.Duration
}

// listen serves the metrics on a loopback address, which it returns.
func (e *busyEngine) listen(t *testing.T) string {
	t.Helper()
	for third := 1; third < 250; third++ { // other stories may have some of the addresses
		address := fmt.Sprintf("127.78.%d.1", third)
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(address, strconv.Itoa(v1beta1.EnginePort)))
		if err != nil {
			continue
		}
		server := &http.Server{Handler: http.HandlerFunc(e.serve), ReadHeaderTimeout: patience}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
		return address
	}
	t.Fatalf("no address of the loopback network has a free port %d", v1beta1.EnginePort)
	return ""
}

// serve writes the sums since the start.
func (e *busyEngine) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/metrics" {
		http.NotFound(w, r)
		return
	}
	seconds := e.running * e.clock.Since(e.started).Seconds()
	tokens := seconds / e.perToken.Seconds()
	requests := math.Floor(tokens / e.output)
	fmt.Fprintf(w, "process_start_time_seconds %d\n", e.started.Unix())
	fmt.Fprintf(w, "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"%d\"} 1\n", e.cacheTokens/16)
	for _, metric := range []struct {
		name  string
		value float64
	}{
		{"vllm:num_requests_running", e.running},
		{"vllm:num_requests_waiting", 0},
		{"vllm:inter_token_latency_seconds_sum", seconds},
		{"vllm:inter_token_latency_seconds_count", tokens},
		{"vllm:request_prompt_tokens_sum", requests * e.input},
		{"vllm:request_prompt_tokens_count", requests},
		{"vllm:request_generation_tokens_sum", requests * e.output},
		{"vllm:request_generation_tokens_count", requests},
		{"vllm:prompt_tokens_total", requests * e.input},
		{"vllm:generation_tokens_total", tokens},
	} {
		fmt.Fprintf(w, "%s{engine=\"0\"} %g\n", metric.name, metric.value)
	}
}

// TestEnginesTeachTheirSpeed: the cost ledger reads an engine that is 1.3 times slower than planned. The status of its
// Workspace gets the time per token once, and the next plan of its namespace is slower. Plans of other namespaces are
// not.
func TestEnginesTeachTheirSpeed(t *testing.T) {
	w := enter(t)
	now := fast{clock.RealClock{}, time.Now()}
	mine, theirs, books := w.namespace(t), w.namespace(t), w.namespace(t)
	o := w.options()
	o.Calibration = options.Calibration{OwnSpeeds: true}
	// A shorter interval than a chart may set: the clock is fast.
	o.Cost = options.Cost{Namespace: books, Name: "books", Interval: 500 * time.Millisecond, CountTokens: true}
	life := w.beginWith(t, faults.NewRecorder(), now, o)
	with := func(ws *v1beta1.Workspace) *v1beta1.Workspace {
		ws.Inference.Objectives = &v1beta1.ObjectivesSpec{OutputTokens: new(int32(100))}
		return ws
	}
	first, second, other := with(onA10(mine, "first", false)), with(onA10(mine, "second", true)), with(onA10(theirs, "other", true))
	w.create(t, first)
	w.untilServing(t, first)

	planned := first.Status.Plan.Performance
	predicted, err := time.ParseDuration(planned.TimePerOutputToken)
	if err != nil {
		t.Fatal(err)
	}
	taken := time.Duration(1.3 * float64(predicted))
	engine := &busyEngine{
		clock: now, started: now.Now(), cacheTokens: 1 << 16, perToken: taken,
		running: float64(planned.Concurrency), input: float64(planned.InputTokens), output: float64(planned.OutputTokens),
	}
	w.giveAddress(t, first, engine.listen(t))

	eventually(t, "the status has the speed", func() (bool, string) {
		w.read(t, first)
		found := first.Status.Engine
		return found != nil && found.Speed != nil, fmt.Sprintf("%+v", found)
	})
	found := first.Status.Engine.Speed
	millis, err := strconv.ParseFloat(found.TimePerOutputToken, 64)
	if want := taken.Seconds() * 1e3; err != nil || math.Abs(millis/want-1) > 0.01 || found.Concurrency != planned.Concurrency ||
		found.InputTokens != planned.InputTokens || found.OutputTokens != planned.OutputTokens {
		t.Errorf("the status has %+v, %v; want %.3f ms under the planned load %+v", found, err, want, planned)
	}
	if first.Status.Engine.Revision != first.Status.Plan.Revision {
		t.Errorf("the speed is of revision %s, want %s", first.Status.Engine.Revision, first.Status.Plan.Revision)
	}

	for _, test := range []struct {
		ws       *v1beta1.Workspace
		slowdown float64
	}{{second, 1.3}, {other, 0}} {
		w.create(t, test.ws)
		w.untilCondition(t, test.ws, v1beta1.ConditionPlanned, metav1.ConditionTrue, "")
		got := test.ws.Status.Plan.Performance
		slowdown, _ := strconv.ParseFloat(got.Slowdown, 64) // empty is 0
		if math.Abs(slowdown-test.slowdown) > 0.02 || got.Basis != planned.Basis {
			t.Errorf("%s: %+v; want %v times %s, %s", test.ws.Name, got, test.slowdown, planned.TimePerOutputToken, planned.Basis)
		}
	}

	before := len(life.recorder.Writes())
	during(t, "nothing is written again", 2*time.Second, func() (bool, string) { // 40 seconds of the clock, four readings
		writes := about(life.recorder.Writes()[before:], "Workspace")
		return len(writes) == 0, fmt.Sprint(writes)
	})
	for _, ws := range []*v1beta1.Workspace{first, second, other} {
		w.remove(t, ws)
	}
}

// giveAddress gives a Workspace's pod an address, as a kubelet does.
func (w *world) giveAddress(t *testing.T, ws *v1beta1.Workspace, address string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ws.Namespace, Name: ws.Name + "-0"}}
	patch := fmt.Appendf(nil, `{"status":{"podIP":%q,"podIPs":[{"ip":%q}]}}`, address, address)
	if err := w.client.Status().Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}
