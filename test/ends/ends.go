// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ends decides whether a container has failed by itself, for tests that look back at a cluster. It must not know how
// the container was read.
package ends

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// OutOfMemory is the reason of a container that exceeded its memory limit.
const OutOfMemory = "OOMKilled"

// signalled is the highest exit code of a process that ended by itself. Higher codes name a signal.
const signalled = 128

// Failure returns how a container last failed by itself, or nil. A signal comes from a test or the kubelet, unless the
// kernel sent it for lack of memory.
func Failure(c *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	for _, end := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
		if end != nil && (end.Reason == OutOfMemory || end.ExitCode > 0 && end.ExitCode <= signalled) {
			return end
		}
	}
	return nil
}

// IsExcused reports whether the log explains a failure: a leader that lost its Lease ends. No log excuses a lack of memory.
func IsExcused(end *corev1.ContainerStateTerminated, log string) bool {
	return end.Reason != OutOfMemory && strings.Contains(log, "leader election lost")
}
