// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// leaseName is the Lease that the controller's replicas elect their leader with.
const leaseName = "modelberth-controller"

const (
	// blowsPerStory is how often something breaks between apply and the end of the deletion.
	blowsPerStory = 3
	// usualStart, usualService and usualEnd are about how long the parts of a story take: blows fall anywhere within them.
	usualStart   = 12 * time.Second
	usualService = 10 * time.Second
	usualEnd     = 7 * time.Second
)

// blow breaks something at a moment of a part of the story.
type blow struct {
	after  time.Duration
	victim victim
}

// TestChaos breaks things at random points of the story. MODELBERTH_CHAOS_ROUNDS is the number of blows, and
// MODELBERTH_CHAOS_SEED repeats those of an earlier run. Unless MODELBERTH_CHAOS_ALL is set, only leaders die. With it, the
// machines of a group lose each other, too, and the cost ledger has to agree with the cloud's own record at the end.
func TestChaos(t *testing.T) {
	rounds := number(t, "MODELBERTH_CHAOS_ROUNDS", 3)
	seed := number(t, "MODELBERTH_CHAOS_SEED", int(time.Now().UnixNano()%1_000_000))
	victims, all := leaders(), number(t, "MODELBERTH_CHAOS_ALL", 0) > 0
	if all {
		victims = append(victims, others()...)
		compare := keepAccounts(t)
		defer compare()
	}
	t.Logf("to repeat this: MODELBERTH_CHAOS_ROUNDS=%d MODELBERTH_CHAOS_SEED=%d", rounds, seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	for story := 1; rounds > 0; story++ {
		var parts [3][]blow
		for range min(rounds, blowsPerStory) {
			rounds--
			victim := victims[random.IntN(len(victims))]
			at := random.Int64N(int64(usualStart + usualService + usualEnd))
			for part, usual := range []time.Duration{usualStart, usualService, usualEnd} {
				if at < int64(usual) {
					parts[part] = append(parts[part], blow{time.Duration(at), victim})
					break
				}
				at -= int64(usual)
			}
		}
		t.Run(fmt.Sprintf("story %d", story), func(t *testing.T) { tellStory(t, parts[0], parts[1], parts[2]) })
	}
	if all {
		early, late := random.Int64N(int64(usualStart)), random.Int64N(int64(usualService))
		t.Run("a group", func(t *testing.T) { tellGroupStory(t, time.Duration(early), time.Duration(late)) })
	}
}

// tellGroupStory cuts the two machines of a group from each other: once after its machines launched, and once while it
// answers. It cannot answer while it is cut. After that, a new incarnation answers on the same machines.
func tellGroupStory(t *testing.T, early, late time.Duration) {
	ns := namespace(t)
	apply(t, ns, rpcWorkspace)
	start := time.Now()
	ws := workspace(t, ns, "sharded")
	<-strike(t, "start", []blow{{early, separation(ws)}})
	ws = waitReadyDespite(t, ns, ws.Name)
	elapsed(t, "a group from manifest to ready, with a cut", start)
	expectAnswers(t, ws, shardedModel)
	before := memberUIDs(t, ws)
	load := enterService(t, ws).startClients(t, 2, loadPause, 10)
	load.waitAnswers(t)

	struck := strike(t, "first request", []blow{{late, separation(ws)}})
	begin := time.Now().Add(late)
	expectNextGroup(t, ws, before)
	elapsed(t, "a group from the cut to the next incarnation", begin)
	<-struck
	waitReadyDespite(t, ns, ws.Name)
	load.waitAnswers(t)
	elapsed(t, "a group from the cut to further answers", begin)
	failed := 0
	all := load.stop()
	for _, o := range all {
		if o.err != "" {
			failed++
		}
	}
	t.Logf("%d requests, of which %d failed", len(all), failed)
	expectAnswers(t, ws, shardedModel)
	expectMachines(t, ws, 2)
	kubectl(t, "delete", "workspace", ws.Name, "--namespace="+ns, "--timeout="+goneTimeout.String())
	expectGone(t, ws)
}

// expectNextGroup waits until all members of a group are others, and ready.
func expectNextGroup(t *testing.T, ws *v1beta1.Workspace, before []types.UID) {
	t.Helper()
	waitFor(t, "another group", recoveryTimeout, func(ctx context.Context) (bool, error) {
		for rank, uid := range before {
			pod := &corev1.Pod{}
			if err := local.client.Get(ctx, memberOf(ws, rank), pod); err != nil || pod.UID == uid || !isPodReady(pod) {
				return false, err
			}
		}
		return true, nil
	})
}

// tellStory goes from manifest to answers to deletion while things break. No client of the ready model gets an error,
// because nothing breaks the model's own pod and network.
func tellStory(t *testing.T, starting, serving, ending []blow) {
	ns := namespace(t)
	struck := strike(t, "start", starting)
	despite(t, "the manifest to be stored", func(context.Context) error {
		_, err := execute(t.Context(), local.kubectl, "apply", "--namespace="+ns, "--filename="+example("demo.yaml"))
		return err
	})
	start := time.Now()
	waitReadyDespite(t, ns, "demo")
	elapsed(t, "from manifest to ready", start)
	<-struck
	ws := waitReadyDespite(t, ns, "demo")
	clients := enterService(t, ws)
	// While the controller manager is down, a Service gets no endpoints, but the Workspace is Ready.
	waitFor(t, "the Service to answer", seenTimeout, func(ctx context.Context) (bool, error) {
		return clients.once(ctx, loadAnswer, false).err == "", nil
	})
	load := clients.startClients(t, 2, loadPause, 10)
	struck = strike(t, "first request", serving)
	pause(t.Context(), usualService)
	<-struck
	load.waitAnswers(t)
	all := load.stop()
	for _, o := range all {
		if o.err != "" {
			t.Errorf("a request at %s failed: %s", o.began.Format(time.TimeOnly), o.err)
		}
	}
	t.Logf("%d requests", len(all))
	ws = waitReadyDespite(t, ns, "demo")
	expectMachine(t, ws, ws.Status.Plan.InstanceType, nil)
	expectAnswers(t, ws, tinyModel)

	struck = strike(t, "deletion", ending)
	start = time.Now()
	despite(t, "the deletion to begin", func(ctx context.Context) error { return client.IgnoreNotFound(local.client.Delete(ctx, ws)) })
	waitFor(t, "the deletion", goneTimeout, func(ctx context.Context) (bool, error) {
		err := local.client.Get(ctx, keyOf(ws), &v1beta1.Workspace{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	elapsed(t, "deletion", start)
	<-struck
	despite(t, "the API server to answer", func(ctx context.Context) error { return local.client.List(ctx, &corev1.NodeList{}) })
	expectGone(t, ws)
	local.ledger.expect(t, ws, 1)
}

// despite repeats a request until it succeeds: the API server may be down for a while.
func despite(t *testing.T, what string, request func(context.Context) error) {
	t.Helper()
	waitFor(t, what, commandTimeout, func(ctx context.Context) (bool, error) {
		err := request(ctx)
		return err == nil, err
	})
}

// waitReadyDespite waits for a ready Workspace while the API server may be down for a while.
func waitReadyDespite(t *testing.T, namespace, name string) *v1beta1.Workspace {
	t.Helper()
	ws := &v1beta1.Workspace{}
	waitFor(t, "the Workspace to be Ready", readyTimeout, func(ctx context.Context) (bool, error) {
		err := local.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, ws)
		return err == nil && meta.IsStatusConditionTrue(ws.Status.Conditions, v1beta1.ConditionReady), err
	})
	return ws
}

// enterService returns clients of a Workspace's Service, on the node of the controller's leader. Each request has its own
// connection: llama.cpp closes connections after some requests, and a request that is sent at that moment fails.
func enterService(t *testing.T, ws *v1beta1.Workspace) *door {
	t.Helper()
	service := &corev1.Service{}
	if err := local.client.Get(t.Context(), keyOf(ws), service); err != nil {
		t.Fatal(err)
	}
	transport := inside(t, waitLeader(t).Spec.NodeName)
	transport.DisableKeepAlives = true
	return &door{"http://" + service.Spec.ClusterIP, &http.Client{Transport: transport}}
}

// strike breaks things one after the other, and closes the channel after the last.
func strike(t *testing.T, beginning string, blows []blow) <-chan struct{} {
	t.Helper()
	slices.SortFunc(blows, func(a, b blow) int { return int(a.after - b.after) })
	done := make(chan struct{})
	ctx := t.Context()
	begin := time.Now()
	go func() {
		defer close(done)
		for _, b := range blows {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(begin.Add(b.after))):
			}
			at := time.Since(begin).Seconds()
			if err := b.victim.hit(ctx); err != nil {
				t.Errorf("%s, %.1f s after the %s: %v", b.victim.name, at, beginning, err)
				return
			}
			t.Logf("%s, %.1f s after the %s", b.victim.name, at, beginning)
		}
	}()
	return done
}

// killLeader deletes the pod that holds the lease, as soon as there is one.
func killLeader(ctx context.Context, hard bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return poll(ctx, func(ctx context.Context) (bool, error) {
		leader, err := leaderPod(ctx)
		if err != nil {
			return false, err
		}
		if hard {
			if err := crash(leader.UID); err != nil {
				return false, err
			}
		}
		return true, client.IgnoreNotFound(local.client.Delete(ctx, leader, client.Preconditions{UID: &leader.UID}))
	})
}

// waitLeader returns the pod that holds the lease. A leader that a rollout ends gives the lease up, and seconds pass
// until another pod takes it.
func waitLeader(t *testing.T) *corev1.Pod {
	t.Helper()
	var leader *corev1.Pod
	waitFor(t, "a leader", time.Minute, func(ctx context.Context) (held bool, err error) {
		leader, err = leaderPod(ctx)
		return err == nil, err
	})
	return leader
}

// leaderPod returns the pod that holds the lease. It fails while no living pod does.
func leaderPod(ctx context.Context) (*corev1.Pod, error) {
	lease := &coordinationv1.Lease{}
	if err := local.client.Get(ctx, types.NamespacedName{Namespace: systemNamespace, Name: leaseName}, lease); err != nil {
		return nil, err
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
		return nil, fmt.Errorf("nobody holds lease %s", leaseName)
	}
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: name}}
	if err := local.client.Get(ctx, keyOf(pod), pod); err != nil {
		return nil, err
	}
	if !pod.DeletionTimestamp.IsZero() {
		return nil, fmt.Errorf("leader %s is dying already", name)
	}
	return pod, nil
}

// number reads a number from the environment.
func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s is %q, want a number", variable, text)
	}
	return n
}
