// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// restartsReported is the age up to which the end of a container is reported. A pod keeps its last end for as long as it
// lives, often for months. A day covers the night before somebody looks, and later the cause is mostly gone.
const restartsReported = 24 * time.Hour

// outOfMemory is the reason of a container that exceeded its memory limit.
const outOfMemory = "OOMKilled"

// checkRestarts names the containers of the controller and the routers that failed and run again. A drained node, an
// upgrade or a rescaling makes new pods, and a container that was asked to stop ends with code 0.
func checkRestarts(e *examination) {
	namespaces := map[string]bool{}
	for _, d := range e.controllers() {
		namespaces[d.Namespace] = true
	}
	seen := map[string]bool{} // two labels may select the same pod
	for _, pod := range typed[corev1.Pod](e.snapshot, "Pod") {
		object := named("Pod", pod.Namespace, pod.Name)
		isRouter := pod.Labels[appName] == router
		if seen[object] || !namespaces[pod.Namespace] || !isRouter && !isOurs(pod.Labels) {
			continue
		}
		seen[object] = true
		for i := range pod.Status.ContainerStatuses {
			c := &pod.Status.ContainerStatuses[i]
			if !isRouter && c.State.Running == nil || !e.failedLately(c) { // explainPods names a controller that does not run
				continue
			}
			e.warnRestarted(object, &pod, c)
		}
	}
}

// failedLately reports whether a container has restarted after a failure of its own.
func (e *examination) failedLately(c *corev1.ContainerStatus) bool {
	last := c.LastTerminationState.Terminated
	if last == nil || c.RestartCount == 0 || e.snapshot.Now.Sub(last.FinishedAt.Time) > restartsReported {
		return false
	}
	// With these reasons, no one recorded the end, for example because the machine restarted.
	isUnseen := slices.Contains([]string{"Unknown", "ContainerStatusUnknown"}, last.Reason)
	return last.Reason == outOfMemory || last.ExitCode != 0 && !isUnseen
}

func (e *examination) warnRestarted(object string, pod *corev1.Pod, c *corev1.ContainerStatus) {
	last := c.LastTerminationState.Terminated
	fix := fmt.Sprintf("kubectl logs %s --container=%s --namespace=%s --previous", pod.Name, c.Name, pod.Namespace)
	if last.Reason == outOfMemory {
		value := "resources.limits.memory"
		if pod.Labels[appName] == router {
			value = "router." + value
		}
		fix += "; if the load is normal, raise " + value + " of the chart"
	}
	e.warn("ContainerRestarted", object, fmt.Sprintf("container %s last ended at %s with exit code %d (%s); its number of restarts is %d",
		c.Name, last.FinishedAt.UTC().Format(time.RFC3339), last.ExitCode, orAbsent(last.Reason), c.RestartCount), fix)
}
