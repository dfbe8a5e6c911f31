// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package ends

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestFailure(t *testing.T) {
	end := func(code int32, reason string) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}
	}
	cases := []struct {
		reason    string
		now, last *corev1.ContainerStateTerminated
		want      *corev1.ContainerStateTerminated
	}{
		{"it never ended", nil, nil, nil},
		{"it ended without an error", nil, end(0, "Completed"), nil},
		{"it failed", nil, end(1, "Error"), end(1, "Error")},
		{"it panicked", nil, end(2, "Error"), end(2, "Error")},
		{"a test killed it", nil, end(137, "Error"), nil},
		{"the kubelet asked it to stop", nil, end(143, "Error"), nil},
		{"the kernel killed it for lack of memory", nil, end(137, OutOfMemory), end(137, OutOfMemory)},
		{"the kernel killed its child for lack of memory", nil, end(0, OutOfMemory), end(0, OutOfMemory)},
		{"it was killed and has not restarted yet", end(137, OutOfMemory), nil, end(137, OutOfMemory)},
		{"it failed before its present end", end(0, "Completed"), end(1, "Error"), end(1, "Error")},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			got := Failure(&corev1.ContainerStatus{
				State: corev1.ContainerState{Terminated: c.now}, LastTerminationState: corev1.ContainerState{Terminated: c.last},
			})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestIsExcused(t *testing.T) {
	const lost = `"error": "leader election lost"`
	for _, c := range []struct {
		reason, ended, log string
		want               bool
	}{
		{"a leader lost its Lease", "Error", lost, true},
		{"a panic", "Error", "panic: nil map", false},
		{"too little memory, with an older line in the log", OutOfMemory, lost, false},
	} {
		if got := IsExcused(&corev1.ContainerStateTerminated{ExitCode: 1, Reason: c.ended}, c.log); got != c.want {
			t.Errorf("%s: %t, want %t", c.reason, got, c.want)
		}
	}
}
