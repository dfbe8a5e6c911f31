// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/process"
)

// Status is the supervisor's report of itself.
type Status struct {
	// Ready reports whether everything has come up.
	Ready bool `json:"ready"`
	// Stage is the current stage of the start, Waiting the thing it waits for, and Answer the last answer from there.
	Stage   string    `json:"stage"`
	Waiting string    `json:"waiting,omitempty"`
	Answer  string    `json:"answer,omitempty"`
	Started time.Time `json:"started"`

	PID        int             `json:"pid"`
	APIServer  string          `json:"apiServer"`
	Kubeconfig string          `json:"kubeconfig"`
	Components []process.State `json:"components"`
	Machines   []MachineStatus `json:"machines"`
}

// MachineStatus is a machine with its node's state.
type MachineStatus struct {
	cloud.Machine

	// Node is empty while there is no node of the machine's name.
	Node string `json:"node,omitempty"`
}

// Values of MachineStatus.Node.
const (
	nodeReady    = "Ready"
	nodeNotReady = "NotReady"
)

// nodesDeadline bounds the look at the nodes; without it the status would hang
// when the API server does.
const nodesDeadline = 2 * time.Second

func (s *Supervisor) answerStatus(w http.ResponseWriter, r *http.Request) {
	status := s.status(r.Context())
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(status) // a peer that hung up gets no answer
}

func (s *Supervisor) status(ctx context.Context) Status {
	status := s.progress.status()
	status.PID = os.Getpid()
	status.APIServer, status.Kubeconfig = s.apiURL, s.options.Layout.Kubeconfig()
	s.mu.Lock()
	kube, keepers := s.kube, s.keepers
	s.mu.Unlock()
	for _, keeper := range keepers {
		status.Components = append(status.Components, keeper.State())
	}
	nodes := nodeStates(ctx, kube)
	for _, m := range s.service.List() {
		status.Machines = append(status.Machines, MachineStatus{Machine: m, Node: nodes[m.Name]})
	}
	if waiting := ailing(status); status.Ready && waiting != "" {
		status.Ready, status.Stage, status.Waiting = false, "repair", waiting
	}
	return status
}

// ailing names the parts missing from a cloud after it was ready.
func ailing(s Status) string {
	for _, component := range s.Components {
		if !component.Running {
			return component.Name + " to run again, after " + component.LastExit
		}
	}
	for _, m := range s.Machines {
		if m.System && m.Node != nodeReady {
			return "node " + m.Name + " to be ready"
		}
	}
	return ""
}

func nodeStates(ctx context.Context, kube client.Client) map[string]string {
	states := map[string]string{}
	if kube == nil {
		return states
	}
	ctx, cancel := context.WithTimeout(ctx, nodesDeadline)
	defer cancel()
	var nodes corev1.NodeList
	if err := kube.List(ctx, &nodes); err != nil {
		return states
	}
	for _, node := range nodes.Items {
		states[node.Name] = nodeReady
		if reason := unreadiness(node); reason != "" {
			states[node.Name] = nodeNotReady
		}
	}
	return states
}

// unreadiness says why a node is not ready, or nothing when it is.
func unreadiness(node corev1.Node) string {
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		if condition.Status == corev1.ConditionTrue {
			return ""
		}
		return fmt.Sprintf("%s: %s", condition.Reason, condition.Message)
	}
	return "the kubelet has not reported yet"
}

// progress is how far the start is.
type progress struct {
	mu  sync.Mutex
	now Status
}

func newProgress(now time.Time) *progress { return &progress{now: Status{Started: now.UTC()}} }

func (p *progress) change(f func(*Status)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.now)
}

func (p *progress) enter(stage string) {
	p.change(func(s *Status) { s.Stage, s.Waiting, s.Answer = stage, "", "" })
}

func (p *progress) wait(what string) {
	p.change(func(s *Status) { s.Waiting, s.Answer = what, "" })
}

func (p *progress) answer(err error) {
	p.change(func(s *Status) {
		s.Answer = ""
		if err != nil {
			s.Answer = err.Error()
		}
	})
}

func (p *progress) done() {
	p.change(func(s *Status) { s.Ready, s.Stage, s.Waiting, s.Answer = true, "ready", "", "" })
}

func (p *progress) status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}
