// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// enforcers returns parts of the names of DaemonSets of network plug-ins that enforce NetworkPolicies.
func enforcers() []string {
	return []string{"calico", "canal", "cilium", "azure-npm", "antrea", "kube-router", "anetd", "ovnkube", "kindnet", "aws-node"}
}

// checkIsolation looks for a network plug-in that enforces NetworkPolicies. It is silent if the controller has reached
// an isolated pod, because the Workspace's condition already reports that.
func checkIsolation(e *examination) {
	isKnown := slices.ContainsFunc(e.snapshot.of("Workspace"), func(ws unstructured.Unstructured) bool {
		_, reason, _ := condition(&ws, v1beta1.ConditionInferenceReady)
		return reason == v1beta1.ReasonGroupNotIsolated
	})
	sets := typed[appsv1.DaemonSet](e.snapshot, "DaemonSet")
	enforces := slices.ContainsFunc(sets, func(d appsv1.DaemonSet) bool {
		return slices.ContainsFunc(enforcers(), func(name string) bool { return strings.Contains(d.Name, name) })
	})
	if !isKnown && !enforces && e.snapshot.isRead("DaemonSet") {
		e.warn("NetworkPolicyUncertain", "", "no DaemonSet has the name of a network plug-in that enforces NetworkPolicies",
			"install one, or test your plug-in with a model on several machines: its engines start only if NetworkPolicies block the controller's test connections to them")
	}
}

func checkDNS(e *examination) {
	if !e.snapshot.isRead("Service") || !e.snapshot.isRead("EndpointSlice") {
		return
	}
	object := named("Service", "kube-system", "kube-dns")
	service := e.snapshot.find("Service", "kube-system", "kube-dns")
	switch {
	case service == nil:
		e.fail("DNSMissing", object, "it does not exist: pods can resolve neither the hub nor each other", "install CoreDNS")
	case !e.answers("kube-system", "kube-dns"):
		e.fail("DNSUnavailable", object, "it has no ready endpoint",
			"kubectl get pods --namespace=kube-system --selector=k8s-app=kube-dns")
	}
}

// answers reports whether a Service has a ready endpoint.
func (e *examination) answers(namespace, service string) bool {
	for _, slice := range typed[discoveryv1.EndpointSlice](e.snapshot, "EndpointSlice") {
		if slice.Namespace != namespace || slice.Labels[discoveryv1.LabelServiceName] != service {
			continue
		}
		if slices.ContainsFunc(slice.Endpoints, func(at discoveryv1.Endpoint) bool {
			return at.Conditions.Ready == nil ||
				*at.Conditions.Ready
		}) {
			return true
		}
	}
	return false
}

// touched returns the resources that the controller writes. A failing webhook for one of them stops the controller.
func touched() []string {
	return []string{
		"*", "pods", "services", "statefulsets", "networkpolicies", "nodeclaims", "nodepools", "workspaces",
		"workspaces/status",
	}
}

// checkWebhooks looks for failing webhooks that block the controller's writes.
func checkWebhooks(e *examination) {
	if !e.snapshot.isRead("Service") || !e.snapshot.isRead("EndpointSlice") {
		return
	}
	for _, c := range typed[admissionv1.ValidatingWebhookConfiguration](e.snapshot, "ValidatingWebhookConfiguration") {
		for _, w := range c.Webhooks {
			e.checkWebhook("ValidatingWebhookConfiguration", c.Name, admissionv1.MutatingWebhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy,
			})
		}
	}
	for _, c := range typed[admissionv1.MutatingWebhookConfiguration](e.snapshot, "MutatingWebhookConfiguration") {
		for _, w := range c.Webhooks {
			e.checkWebhook("MutatingWebhookConfiguration", c.Name, w)
		}
	}
}

func (e *examination) checkWebhook(kind, name string, w admissionv1.MutatingWebhook) {
	concerns := slices.ContainsFunc(w.Rules, func(rule admissionv1.RuleWithOperations) bool {
		return slices.ContainsFunc(rule.Resources, func(resource string) bool { return slices.Contains(touched(), resource) })
	})
	at := w.ClientConfig.Service
	mayFail := w.FailurePolicy != nil && *w.FailurePolicy == admissionv1.Ignore
	if !concerns || mayFail || at == nil || e.answers(at.Namespace, at.Name) {
		return
	}
	e.fail("WebhookUnavailable", named(kind, "", name),
		fmt.Sprintf("webhook %s must answer, but Service %s/%s has no ready endpoint", w.Name, at.Namespace, at.Name),
		fmt.Sprintf("repair the Service's pods, or: kubectl delete %s %s", strings.ToLower(kind), name))
}
