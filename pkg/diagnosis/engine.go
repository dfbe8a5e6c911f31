// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// crash covers every container that ended unexpectedly, whether it has just ended, waits or runs again. These states
// alternate, so they share one finding.
func crash(in *Input, pod *corev1.Pod) (Finding, bool) {
	_, said := lastOfAgent(pod)
	for _, status := range unsettled(pod) {
		last := ended(pod, status)
		if last == nil || isStartFailure(last) || said.isAboutMember() {
			continue
		}
		if rule, groups := in.Signatures.find(last.Message); rule != nil {
			says, next := rule.sentences(groups, in.place(pod, status))
			return finding(rule.Reason, "container %q of pod %q ended with %s, because %s%s: %s",
				status.Name, pod.Name, exit(last.ExitCode), says, in.planned(rule.Compare), next), true
		}
		line, advice := errorLine(last.Message), crashAdvice(pod.Name, status.Name, last.ExitCode)
		return finding(v1beta1.ReasonContainerCrashLoop, "container %q of pod %q ended with %s%s and restarts: %s",
			status.Name, pod.Name, exit(last.ExitCode), quoted(line), advice), true
	}
	return Finding{}, false
}

// planned describes the plan's figures for a comparison; empty if there are none.
func (in *Input) planned(which comparison) string {
	if in.Plan == nil || in.Plan.Memory == nil {
		return ""
	}
	memory := in.Plan.Memory
	switch which {
	case compareMemory:
		return fmt.Sprintf("; for each GPU, the plan expected %.2f GiB of weights, %.2f GiB of KV cache and %.2f GiB "+
			"of overhead, out of %.2f GiB (%s)", memory.Weights, memory.KVCache, memory.Overhead, memory.Total, memory.Basis)
	case compareCache:
		return fmt.Sprintf("; the plan expected %.2f GiB of KV cache per GPU, for %d sequences of %d tokens (%s)",
			memory.KVCache, in.Plan.Concurrency, in.Plan.MaxModelLen, memory.Basis)
	default:
		return ""
	}
}

func crashAdvice(pod, container string, code int32) string {
	if code == killed {
		return fmt.Sprintf("kubectl describe pod %s shows whether its liveness probe failed or the node ran out of a resource", pod)
	}
	return fmt.Sprintf("kubectl logs --previous %s -c %s shows more", pod, container)
}

// probeSlack is the longest delay between the deadline of a startup probe and the end of the container. The probe may
// hang until its own timeout, and the kubelet records whole seconds.
const probeSlack = 30 * time.Second

// startupTimeout covers a container that the kubelet ended because its startup probe never passed. The container's
// status does not show the reason. The evidence is that it ran for as long as the probe allows and was then terminated.
func startupTimeout(_ *Input, pod *corev1.Pod) (Finding, bool) {
	for _, status := range unsettled(pod) {
		last := ended(pod, status)
		container, _ := containerOf(pod, status)
		if last == nil || container.StartupProbe == nil || last.Reason == reasonOOMKilled {
			continue
		}
		isTold := last.ExitCode == 0 || last.ExitCode == killed || last.ExitCode == 128+15
		allowed := startupTime(container.StartupProbe)
		grace := time.Duration(ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 30)) * time.Second
		ran := last.FinishedAt.Sub(last.StartedAt.Time)
		if !isTold || allowed <= 0 || last.StartedAt.IsZero() || ran < allowed || ran > allowed+grace+probeSlack {
			continue
		}
		return finding(v1beta1.ReasonStartupTimeout,
			"container %q of pod %q did not answer %s within %s of its start, so the kubelet restarts it: "+
				"kubectl logs --previous %s -c %s shows how far it got; if that repeats, allow a machine type with a faster disk, or choose a smaller model",
			status.Name, pod.Name, probed(container.StartupProbe), allowed, pod.Name, status.Name), true
	}
	return Finding{}, false
}

// startupTime returns the time that a probe gives a container to start. The first try has no period before it, so N
// tries take N-1 periods.
func startupTime(probe *corev1.Probe) time.Duration {
	tries := max(probe.FailureThreshold, 1) - 1
	return time.Duration(probe.InitialDelaySeconds+tries*max(probe.PeriodSeconds, 1)) * time.Second
}

func probed(probe *corev1.Probe) string {
	if probe.HTTPGet != nil && probe.HTTPGet.Path != "" {
		return probe.HTTPGet.Path
	}
	return "its startup probe"
}
