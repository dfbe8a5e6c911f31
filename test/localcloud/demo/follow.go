// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/modelberth/modelberth/pkg/usd"
)

// status is the readable part of a Workspace's status.
type status struct {
	Conditions []metav1.Condition `json:"conditions"`
	Plan       struct {
		Summary     string `json:"summary"`
		HourlyPrice string `json:"hourlyPrice"`
	} `json:"plan"`
}

func (s status) find(kind string) metav1.Condition {
	for _, condition := range s.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown}
}

func (s status) is(kind string) bool { return s.find(kind).Status == metav1.ConditionTrue }

// stage is one part of the way, and the condition for its end.
type stage struct {
	condition string
	name      string
	// detail is the condition with more detail during the stage.
	detail string
}

func stages() []stage {
	return []stage{
		{condition: "Planned", name: "plan"},
		{condition: "ResourceReady", name: "machine", detail: "NodeClaimReady"},
		{condition: "InferenceReady", name: "inference server"},
		{condition: "Ready", name: "endpoint"},
	}
}

// view is a status in words for a person.
type view struct {
	// done are the finished stages, in order.
	done []string
	// waiting is the reason of the next stage's wait.
	waiting string
	// ready means there is nothing left to wait for.
	ready bool
	// stalled is the reason why waiting is of no use.
	stalled string
}

// look reads a status.
func look(s status) view {
	v := view{ready: s.is("Ready")}
	if stalled := s.find("Stalled"); stalled.Status == metav1.ConditionTrue {
		v.stalled = stalled.Reason + ": " + stalled.Message
	}
	for _, stage := range stages() {
		if s.is(stage.condition) {
			v.done = append(v.done, stage.done(s))
			continue
		}
		v.waiting = stage.name + ": " + stage.text(s)
		break
	}
	return v
}

func (g stage) done(s status) string {
	if g.condition == "Planned" {
		text := "planned: " + s.Plan.Summary
		if price, err := strconv.ParseFloat(s.Plan.HourlyPrice, 64); err == nil {
			text += ", " + usd.PerHour(price)
		}
		return text
	}
	return g.name + ": " + s.find(g.condition).Message
}

func (g stage) text(s status) string {
	for _, kind := range []string{g.detail, g.condition} {
		if condition := s.find(kind); kind != "" && condition.Status == metav1.ConditionFalse && condition.Message != "" {
			return condition.Message
		}
	}
	return "waiting for the controller"
}

// follower prints the progress of one Workspace.
type follower struct {
	get     func(ctx context.Context) (status, error)
	name    string
	console *Console
	// told is how many of the stages behind have been told.
	told int
}

func newFollower(kubeconfig, namespace, name string, console *Console) (*follower, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	config.Timeout = showLimit
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	workspaces := client.Resource(schema.GroupVersionResource{Group: "kaito.sh", Version: "v1beta1", Resource: "workspaces"}).Namespace(namespace)
	get := func(ctx context.Context) (status, error) {
		object, err := workspaces.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return status{}, err
		}
		var read struct {
			Status status `json:"status"`
		}
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &read)
		return read.Status, err
	}
	return &follower{get: get, name: name, console: console}, nil
}

// untilReady returns when the Workspace is ready, stalls, or the context ends.
func (f *follower) untilReady(ctx context.Context) error {
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	for {
		s, err := f.get(ctx)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("reading Workspace %s: %w", f.name, err)
		}
		if err == nil {
			if ready, err := f.tell(look(s)); ready || err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return cause(ctx, ctx.Err())
		case <-ticker.C:
		}
	}
}

// tell prints the changes.
func (f *follower) tell(v view) (bool, error) {
	for ; f.told < len(v.done); f.told++ {
		f.console.Step("%s", v.done[f.told])
	}
	if v.ready {
		return true, nil
	}
	if v.stalled != "" {
		return false, fmt.Errorf("workspace %s stalled: %s", f.name, v.stalled)
	}
	f.console.Wait(v.waiting)
	return false, nil
}
