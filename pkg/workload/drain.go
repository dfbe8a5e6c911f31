// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// defaultGracePeriod is the time for running requests to finish, in seconds. The engine ends the remaining requests
// gracePeriodMargin before the kubelet kills it, so that it can exit on its own.
const (
	defaultGracePeriod = 120
	gracePeriodMargin  = 10
)

// Drain returns how long running requests may take once the pod begins to terminate.
func Drain(ws *v1beta1.Workspace) time.Duration {
	seconds := int64(defaultGracePeriod)
	if ws.Inference != nil && ws.Inference.Pod != nil {
		seconds = ptr.Deref(ws.Inference.Pod.TerminationGracePeriodSeconds, seconds)
	}
	return time.Duration(max(0, seconds-gracePeriodMargin)) * time.Second
}

// drained returns the preStop hook of the engine. The agent answers it when no request is running, and only then does
// the kubelet signal the engine to end.
func drained() *corev1.Lifecycle {
	return &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/drain", Port: intstr.FromInt32(weightsPort)},
	}}
}

// drainArgs returns the agent's arguments to detect running requests. A worker follows its leader.
func drainArgs(in Input) []string {
	var args []string
	patience := Drain(in.Workspace)
	switch {
	case patience == 0:
		return nil
	case in.Engine.HealthPath == "":
		args = append(args, "--drain-leader", LeaderAddress(in.Workspace))
	case len(in.Engine.BusyMetrics) == 0:
		return nil
	default:
		port := cmp.Or(in.Engine.LoopbackPort, v1beta1.EnginePort)
		args = append(args, "--drain-metrics", fmt.Sprintf("http://127.0.0.1:%d/metrics", port))
		for _, name := range in.Engine.BusyMetrics {
			args = append(args, "--drain-busy", name)
		}
	}
	return append(args, "--drain-timeout", patience.String())
}

// drainKey returns the endpoint's key for an agent that reads the engine's metrics or changes its adapters.
func drainKey(in Input) []corev1.EnvVar {
	if in.APIKeyVariable == "" || len(drainArgs(in)) == 0 && !in.isLive() {
		return nil
	}
	return apiKey(in, v1beta1.APIKeyKey)
}
