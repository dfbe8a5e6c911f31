// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// leaseName is the Lease that the controller's replicas elect their leader with.
const leaseName = "modelberth-controller"

const (
	// killsPerStory is how often the leader dies between apply and the end of the deletion.
	killsPerStory = 3
	// usualStart and usualEnd are about how long the two halves of a story take: kills fall anywhere
	// within them.
	usualStart = 12 * time.Second
	usualEnd   = 7 * time.Second
)

// kill is one death of the leader.
type kill struct {
	// after the manifest was applied, or after the deletion began.
	after time.Duration
	// hard kills end the process before it can give the lease back.
	hard bool
}

// TestChaos kills the controller's leader at random points of the story. MODELBERTH_CHAOS_ROUNDS is
// the number of kills, MODELBERTH_CHAOS_SEED repeats the ones of an earlier run.
func TestChaos(t *testing.T) {
	rounds := number(t, "MODELBERTH_CHAOS_ROUNDS", 3)
	seed := number(t, "MODELBERTH_CHAOS_SEED", int(time.Now().UnixNano()%1_000_000))
	t.Logf("to repeat this: MODELBERTH_CHAOS_ROUNDS=%d MODELBERTH_CHAOS_SEED=%d", rounds, seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	for story := 1; rounds > 0; story++ {
		var starting, ending []kill
		for range min(rounds, killsPerStory) {
			rounds--
			hard := random.IntN(2) == 0
			if at := random.Int64N(int64(usualStart + usualEnd)); at < int64(usualStart) {
				starting = append(starting, kill{time.Duration(at), hard})
			} else {
				ending = append(ending, kill{time.Duration(at) - usualStart, hard})
			}
		}
		t.Run(fmt.Sprintf("story %d", story), func(t *testing.T) { tellStory(t, starting, ending) })
	}
}

// tellStory goes from manifest to answer to deletion while the leader dies.
func tellStory(t *testing.T, starting, ending []kill) {
	ns := namespace(t)
	died := killAll(t, "start", starting)
	kubectl(t, "apply", "--namespace="+ns, "--filename="+example("demo.yaml"))
	start := time.Now()
	waitReady(t, ns, "demo")
	elapsed(t, "from manifest to ready", start)
	<-died
	ws := waitReady(t, ns, "demo")
	expectMachine(t, ws, ws.Status.Plan.InstanceType, nil)
	expectAnswers(t, ws, tinyModel)

	died = killAll(t, "end", ending)
	start = time.Now()
	kubectl(t, "delete", "workspace", ws.Name, "--namespace="+ns, "--timeout="+goneTimeout.String())
	elapsed(t, "deletion", start)
	<-died
	expectGone(t, ws)
	local.ledger.expect(t, ws, 1)
}

// killAll kills the leader at each point and closes the channel after the last.
func killAll(t *testing.T, half string, kills []kill) <-chan struct{} {
	t.Helper()
	slices.SortFunc(kills, func(a, b kill) int { return int(a.after - b.after) })
	done := make(chan struct{})
	ctx := t.Context()
	begin := time.Now()
	go func() {
		defer close(done)
		for _, k := range kills {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(begin.Add(k.after))):
			}
			pod, err := killLeader(ctx, k.hard)
			if err != nil {
				t.Errorf("killing the leader %s after the %s: %v", k.after, half, err)
				return
			}
			t.Logf("killed leader %s %.1f s after the %s (hard: %t)", pod, time.Since(begin).Seconds(), half, k.hard)
		}
	}()
	return done
}

// killLeader deletes the pod that holds the lease, as soon as there is one.
func killLeader(ctx context.Context, hard bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var name string
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		leader, err := leaderPod(ctx)
		if err != nil {
			return false, err
		}
		name = leader.Name
		if hard {
			if err := crash(leader.UID); err != nil {
				return false, err
			}
		}
		return true, client.IgnoreNotFound(local.client.Delete(ctx, leader, client.Preconditions{UID: &leader.UID}))
	})
	return name, err
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
