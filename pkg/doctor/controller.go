// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

func checkController(e *examination) {
	if !e.snapshot.isRead("Deployment") {
		return
	}
	all := e.controllers()
	if len(all) == 0 {
		e.fail("ControllerMissing", "", "no Deployment has the label "+appName+"="+product, install)
	}
	for i := range all {
		d := &all[i]
		object, wanted := named("Deployment", d.Namespace, d.Name), int32(1)
		if d.Spec.Replicas != nil {
			wanted = *d.Spec.Replicas
		}
		logs := fmt.Sprintf("kubectl describe pods --namespace=%s --selector=%s=%s", d.Namespace, appName, d.Labels[appName])
		switch {
		case wanted == 0:
			e.fail("ControllerScaledToZero", object, "spec.replicas is 0",
				fmt.Sprintf("kubectl scale deployment %s --namespace=%s --replicas=2", d.Name, d.Namespace))
		case e.explainPods(d):
		case d.Status.AvailableReplicas == 0:
			e.fail("ControllerUnavailable", object, fmt.Sprintf("none of %d replicas is available", wanted), logs)
		case d.Status.AvailableReplicas < wanted:
			e.warn("ControllerDegraded", object, fmt.Sprintf("%d of %d replicas are available", d.Status.AvailableReplicas, wanted), logs)
		}
	}
}

// explainPods adds the reasons why pods of the controller do not run. It reports whether it found one.
func (e *examination) explainPods(d *appsv1.Deployment) bool {
	found := false
	for _, pod := range typed[corev1.Pod](e.snapshot, "Pod") {
		if pod.Namespace != d.Namespace || !isOurs(pod.Labels) {
			continue
		}
		object := named("Pod", pod.Namespace, pod.Name)
		for i := range pod.Status.ContainerStatuses {
			found = e.explainContainer(object, &pod, &pod.Status.ContainerStatuses[i]) || found
		}
		if pod.Status.Phase == corev1.PodPending && pod.Spec.NodeName == "" && len(pod.Status.Conditions) > 0 {
			found = true
			e.fail("ControllerUnschedulable", object, pod.Status.Conditions[0].Message,
				fmt.Sprintf("kubectl describe pod %s --namespace=%s", pod.Name, pod.Namespace))
		}
	}
	return found
}

// explainContainer adds the reason why a container of the controller does not run. It reports whether it found one.
func (e *examination) explainContainer(object string, pod *corev1.Pod, c *corev1.ContainerStatus) bool {
	last := c.LastTerminationState.Terminated
	switch waiting := c.State.Waiting; {
	case c.State.Running == nil && last != nil && last.Reason == outOfMemory: // checkRestarts warns if it runs again
		e.fail("ControllerOutOfMemory", object, "container "+c.Name+" was killed for lack of memory (OOMKilled)",
			install+" --set=resources.limits.memory=1Gi")
	case waiting != nil && (waiting.Reason == "ImagePullBackOff" || waiting.Reason == "ErrImagePull"):
		e.fail("ControllerImageMissing", object, "image "+c.Image+": "+waiting.Message, install+" --set=registry=REGISTRY")
	case waiting != nil && waiting.Reason == "CrashLoopBackOff":
		e.fail("ControllerCrashes", object, fmt.Sprintf("container %s has restarted %d times", c.Name, c.RestartCount),
			fmt.Sprintf("kubectl logs %s --namespace=%s --previous", pod.Name, pod.Namespace))
	default:
		return false
	}
	return true
}

// checkLease looks for a running controller without a leader.
func checkLease(e *examination) {
	if !e.snapshot.isRead("Lease") {
		return
	}
	leases := typed[coordinationv1.Lease](e.snapshot, "Lease")
	for _, d := range e.controllers() {
		name := first(setting(&d, "lease-name"), "modelberth-controller")
		object := named("Lease", d.Namespace, name)
		logs := fmt.Sprintf("kubectl logs deployment/%s --namespace=%s", d.Name, d.Namespace)
		at := slices.IndexFunc(leases, func(l coordinationv1.Lease) bool { return l.Namespace == d.Namespace && l.Name == name })
		switch {
		case d.Status.AvailableReplicas == 0:
		case at < 0:
			e.fail("LeaderNeverElected", object, "the controller runs, but the Lease does not exist", logs)
		case leases[at].Spec.RenewTime == nil || e.snapshot.Now.Sub(leases[at].Spec.RenewTime.Time) > time.Minute:
			e.fail("LeaderSilent", object, "no replica has renewed it for more than a minute", logs)
		}
	}
}

// checkPolicies checks that each of our policies has a binding. There may be no policies, because the chart can be
// installed without them.
func checkPolicies(e *examination) {
	bound := map[string]bool{}
	for _, binding := range e.snapshot.of("ValidatingAdmissionPolicyBinding") {
		spec, _ := binding.Object["spec"].(map[string]any)
		name, _ := spec["policyName"].(string)
		bound[name] = true
	}
	for _, policy := range e.snapshot.of("ValidatingAdmissionPolicy") {
		if isOurs(policy.GetLabels()) && !bound[policy.GetName()] &&
			e.snapshot.isRead("ValidatingAdmissionPolicyBinding") {
			e.fail("PolicyNotBound", called(&policy), "no ValidatingAdmissionPolicyBinding names it, so it has no effect",
				install+" --set=policies.install=true")
		}
	}
}
