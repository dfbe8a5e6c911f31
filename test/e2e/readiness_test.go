// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// readyTolerance is how long routers may need to see that a pod is ready, or no longer.
const readyTolerance = 2 * time.Second

// span is a time of readiness. Its end is zero while it lasts.
type span struct{ from, to time.Time }

// readiness records when the pods of a namespace were ready.
type readiness struct {
	mu sync.Mutex
	// spans are by address: two pods may have one after the other.
	spans map[string][]span
}

// watchReadiness records until the end of the test.
func watchReadiness(t *testing.T, namespace string) *readiness {
	t.Helper()
	r := &readiness{spans: map[string][]span{}}
	ctx := t.Context()
	var done sync.WaitGroup
	t.Cleanup(done.Wait)
	done.Go(func() {
		for ctx.Err() == nil { // the API server ends a watch now and then
			watcher, err := local.client.Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace))
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("watching pods: %v", err)
				}
				return
			}
			for event := range watcher.ResultChan() {
				if pod, isPod := event.Object.(*corev1.Pod); isPod {
					r.note(pod, event.Type != watch.Deleted && pod.DeletionTimestamp.IsZero() && isReady(pod), time.Now())
				}
			}
		}
	})
	return r
}

func (r *readiness) note(pod *corev1.Pod, ready bool, now time.Time) {
	address := pod.Status.PodIP
	if address == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	spans := r.spans[address]
	isOpen := len(spans) > 0 && spans[len(spans)-1].to.IsZero()
	switch {
	case ready && !isOpen:
		r.spans[address] = append(spans, span{from: now})
	case !ready && isOpen:
		spans[len(spans)-1].to = now
	}
}

// wasReady reports whether the pod with an address was ready at some time of a request.
func (r *readiness) wasReady(address string, from, to time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans[address] {
		if !s.from.Add(-readyTolerance).After(to) && (s.to.IsZero() || !s.to.Add(readyTolerance).Before(from)) {
			return true
		}
	}
	return false
}

// knows reports whether the pod with an address was ever ready.
func (r *readiness) knows(address string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.spans[address]) > 0
}

// accessLog reads the access logs of all routers.
type accessLog struct {
	pods *readiness
	mu   sync.Mutex
	// answered is the number of lines with an answer of a replica, and unready are the lines of replicas that were not ready.
	answered int
	unready  []string
	// followed are the routers whose log is read.
	followed map[types.UID]bool
}

// followAccessLog reads until the end of the test.
func followAccessLog(t *testing.T, pods *readiness) *accessLog {
	t.Helper()
	a := &accessLog{pods: pods, followed: map[types.UID]bool{}}
	ctx := t.Context()
	var done sync.WaitGroup
	t.Cleanup(done.Wait)
	done.Go(func() {
		for ctx.Err() == nil { // a router may be replaced
			routers := &corev1.PodList{}
			labels := client.MatchingLabels{"app.kubernetes.io/name": "modelberth-router"}
			if err := local.client.List(ctx, routers, client.InNamespace(systemNamespace), labels); err == nil {
				for i := range routers.Items {
					if pod := &routers.Items[i]; isReady(pod) && !a.isFollowed(pod.UID) {
						done.Go(func() { a.follow(ctx, pod) })
					}
				}
			}
			pause(ctx, time.Second)
		}
	})
	return a
}

// isFollowed reports whether the log of a pod is read, and marks it.
func (a *accessLog) isFollowed(pod types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.followed[pod]
	a.followed[pod] = true
	return before
}

// follow reads the log of a router's container until it ends. A new container of the pod is followed anew.
func (a *accessLog) follow(ctx context.Context, pod *corev1.Pod) {
	command := exec.CommandContext(ctx, local.kubectl, "logs", pod.Name, "--namespace="+pod.Namespace, "--follow", "--since=1s")
	command.Env = append(command.Environ(), "KUBECONFIG="+local.kubeconfig)
	output, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err == nil {
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			a.read(lines.Bytes())
		}
		_ = command.Wait() // the container ended, or the test
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.followed, pod.UID)
}

// read judges a line.
func (a *accessLog) read(line []byte) {
	var entry struct {
		Time     time.Time
		Msg      string
		Status   int
		Duration time.Duration
		Replica  string
	}
	if json.Unmarshal(line, &entry) != nil || entry.Msg != "request" || entry.Replica == "" || entry.Status >= 500 {
		return
	}
	address, _, err := net.SplitHostPort(entry.Replica)
	if err != nil || !a.pods.knows(address) {
		return // a replica of another set
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answered++
	if from := entry.Time.Add(-entry.Duration); !a.pods.wasReady(address, from, entry.Time) {
		a.unready = append(a.unready, fmt.Sprintf("%s from %s to %s", address, from.Format(time.TimeOnly), entry.Time.Format(time.TimeOnly)))
	}
}

// verdict returns how many answers were judged, and those of pods that were not ready.
func (a *accessLog) verdict() (judged int, unready []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answered, a.unready
}
