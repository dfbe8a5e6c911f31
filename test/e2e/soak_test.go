// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// scaledSet is an InferenceSet whose replicas follow the demand, from none to three. PRESET and ENGINE are to be replaced.
const scaledSet = `apiVersion: kaito.sh/v1beta1
kind: InferenceSet
metadata: {name: pair}
spec:
  autoscaling:
    minReplicas: 0
    maxReplicas: 3
    idleAfter: 1m
    targets: [{metric: RequestsInFlight, value: "2"}]
    scaleDown: {window: 30s}
  template:
    inference:
      preset: {name: PRESET}
      engine: ENGINE
`

const (
	// busyClients keep three replicas busy, and quietClients one.
	busyClients, quietClients = 12, 1
	// mostReplicas is the maximum of scaledSet.
	mostReplicas = 3
	// demandTimeout bounds the time until the number of replicas follows the demand: some reads of the engines, windows, and
	// starts.
	demandTimeout = 5 * time.Minute
	// requestsPerConnection of a client in the soak: every new connection costs a thread.
	requestsPerConnection = 100
	// mostFailuresShown bounds the failures in the test's output.
	mostFailuresShown = 20
)

// TestSoak sends MODELBERTH_SOAK_REQUESTS requests through two routers to a set that scales 0→1→3→0 again and again. In
// each round something dies or changes under load. No request may fail, but for those of a killed process, and none may
// be answered by a pod that is not ready.
func TestSoak(t *testing.T) {
	total := number(t, "MODELBERTH_SOAK_REQUESTS", 0)
	if total == 0 {
		t.Skip("this takes an hour: make soak")
	}
	configure(t, "router.enabled=true", "router.hold.requests=60", "router.image.repository=registry.local:5000/modelberth/router", "router.image.tag=dev")
	t.Run("llama.cpp", func(t *testing.T) {
		s := startSoak(t, "tiny-chat", `{args: {context-shift: "true"}}`, engineProcess)
		s.round(t, disturbance{}, total/500)
		s.report(t)
	})
	t.Run("vLLM's stand-in", func(t *testing.T) {
		s := startSoak(t, vllmModel, `{env: [{name: VLLMSIM_TTFT, value: 5ms}, {name: VLLMSIM_ITL, value: 1ms}]}`, "vllm")
		all := s.disturbances()
		for _, each := range all {
			s.round(t, each, total/len(all))
		}
		s.report(t)
	})
}

// soak is the state of a soak with one set.
type soak struct {
	*door
	set     types.NamespacedName
	process string // of the engine
	pods    *readiness
	log     *accessLog
	// requests is the number so far, and took the time under full load.
	requests int
	took     time.Duration
	// lost counts requests that failed for a permitted cause, by the cause.
	lost map[string]int
}

func startSoak(t *testing.T, preset, engine, process string) *soak {
	t.Helper()
	ns := namespace(t)
	addKey(t, keyOfTeam, "namespaces="+ns)
	apply(t, ns, strings.NewReplacer("PRESET", preset, "ENGINE", engine).Replace(scaledSet))
	s := &soak{
		door: enter(t), set: types.NamespacedName{Namespace: ns, Name: "pair"}, process: process,
		pods: watchReadiness(t, ns), lost: map[string]int{},
	}
	s.log = followAccessLog(t, s.pods)
	return s
}

// disturbance is what happens to the set while it is under load.
type disturbance struct {
	name string
	// act returns when it is over. Requests under way between its start and its end may fail if mayFail is set.
	act     func(t *testing.T)
	mayFail bool
}

// disturbances returns all kinds.
func (s *soak) disturbances() []disturbance {
	return []disturbance{
		{"no disturbance", nil, false},
		{"killed replica", func(t *testing.T) {
			pods := enginePods(t, s.set)
			if err := kill9(pods[0].UID, s.process); err != nil {
				t.Error(err)
			}
		}, true},
		{"killed router", func(t *testing.T) {
			pods := routerPods(t)
			if err := kill9(pods[0].UID, routerProcess); err != nil {
				t.Error(err)
			}
			waitReturn(t, "the router", &pods[0])
		}, true},
		{"deleted router", func(t *testing.T) {
			kubectl(t, "delete", "pod", routerPods(t)[0].Name, "--namespace="+systemNamespace, "--wait", "--timeout="+goneTimeout.String())
		}, false},
		{"edited template", func(t *testing.T) {
			kubectl(t, "patch", "inferenceset", s.set.Name, "--namespace="+s.set.Namespace, "--type=merge",
				`--patch={"spec":{"template":{"inference":{"engine":{"args":{"max-num-seqs":"64"}}}}}}`)
			s.waitStatus(t, "the new template", func(set *v1beta1.InferenceSet) bool {
				return set.Status.ObservedGeneration == set.Generation && set.Status.UpdatedReplicas == mostReplicas && set.Status.ReadyReplicas == mostReplicas
			})
		}, false},
		{"killed leader of the controller", func(t *testing.T) {
			if err := killLeader(t.Context(), true); err != nil {
				t.Error(err)
			}
		}, false},
	}
}

// round takes the set from zero to three replicas and back under load, and sends so many requests meanwhile.
func (s *soak) round(t *testing.T, d disturbance, requests int) {
	s.waitScaled(t, 0)
	start := time.Now()
	quiet := s.startClients(t, quietClients, loadPause, requestsPerConnection)
	s.waitScaled(t, 1)
	elapsed(t, "from a request to the first replica", start)
	quiet.waitAnswers(t)
	outcomes := quiet.stop()

	start = time.Now()
	busy := s.startClients(t, busyClients, 0, requestsPerConnection)
	s.waitScaled(t, mostReplicas)
	elapsed(t, "from one replica to three", start)
	busy.waitAnswers(t)
	from, until := time.Now(), time.Now()
	if d.act != nil {
		d.act(t)
		until = time.Now()
	}
	busy.waitAnswers(t)
	waitFor(t, fmt.Sprintf("%d requests", requests), time.Hour, func(context.Context) (bool, error) {
		return int(busy.answered.Load())+len(outcomes) >= requests, nil
	})
	outcomes = append(outcomes, busy.stop()...)
	s.took += time.Since(start)
	s.judgeAll(t, d, outcomes, from, until)

	start = time.Now()
	s.waitScaled(t, 0)
	elapsed(t, "from the last request to zero", start)
}

// waitScaled waits until the set has so many ready replicas and no other ones.
func (s *soak) waitScaled(t *testing.T, replicas int) {
	t.Helper()
	s.waitStatus(t, fmt.Sprintf("%d ready replicas", replicas), func(set *v1beta1.InferenceSet) bool {
		return int(set.Status.ReadyReplicas) == replicas && (replicas > 0 || set.Status.Replicas == 0)
	})
}

func (s *soak) waitStatus(t *testing.T, what string, is func(*v1beta1.InferenceSet) bool) {
	t.Helper()
	waitFor(t, what, demandTimeout, func(ctx context.Context) (bool, error) {
		set := &v1beta1.InferenceSet{}
		err := local.client.Get(ctx, s.set, set)
		return err == nil && is(set), client.IgnoreNotFound(err)
	})
}

// judgeAll fails the test for each request that failed without a permitted cause.
func (s *soak) judgeAll(t *testing.T, d disturbance, outcomes []outcome, from, until time.Time) {
	t.Helper()
	s.requests += len(outcomes)
	failed := 0
	for _, o := range outcomes {
		switch {
		case o.err == "":
		case d.mayFail && !o.began.After(until) && !o.ended.Before(from):
			s.lost[d.name]++
		default:
			failed++
			if failed <= mostFailuresShown {
				t.Errorf("%s: a request from %s to %s after its start failed: %s", d.name, o.began.Sub(from), o.ended.Sub(from), o.err)
			}
		}
	}
	t.Logf("%s: %d requests, %d failed with it, %d for no permitted cause", d.name, len(outcomes), s.lost[d.name], failed)
}

// report prints the figures, and fails the test if a pod that was not ready has answered.
func (s *soak) report(t *testing.T) {
	t.Helper()
	judged, unready := s.log.verdict()
	for i, line := range unready {
		if i < mostFailuresShown {
			t.Errorf("answered by a pod that was not ready: %s", line)
		}
	}
	if judged < s.requests/2 {
		t.Errorf("the access log has %d of %d requests", judged, s.requests)
	}
	lost := 0
	for _, n := range s.lost {
		lost += n
	}
	t.Logf("%d requests, %.0f per second under load; %d lost with a killed process; the access log has %d of them, %d answered by a pod that was not ready",
		s.requests, float64(s.requests)/s.took.Seconds(), lost, judged, len(unready))
	if got := s.mustAsk(t, keyOfTeam, http.MethodGet, "/v1/models", ""); got.status != http.StatusOK {
		t.Errorf("the routers list no models at the end: %+v", got)
	}
}
