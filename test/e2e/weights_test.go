// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// faultsURL is where the local cloud's hub takes orders to misbehave.
const faultsURL = "http://hub.local:8081/admin/faults"

// giveUpTimeout covers the minute without progress after which the agent gives up, and some.
const giveUpTimeout = 2 * time.Minute

// expectWeightFaults starts a pod that fetches the model again from a faulty hub: the status has the fault, nothing is
// served meanwhile, and the model recovers.
func expectWeightFaults(t *testing.T, ws *v1beta1.Workspace) {
	cases := []struct{ name, fault, reason string }{
		{"the hub is down", `{"outage": true}`, v1beta1.ReasonWeightsHubUnreachable},
		{"the checksum is wrong", `{"route": "content", "wrongBytes": true}`, v1beta1.ReasonWeightsChecksum},
		{"the disk is full", `{"claimBytes": 1125899906842624}`, v1beta1.ReasonWeightsDiskFull},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			curl(t, ws.Namespace, "--request", "POST", "--data", `{"faults": [`+c.fault+`]}`, faultsURL)
			healed := false
			heal := func() { curl(t, ws.Namespace, "--request", "DELETE", faultsURL); healed = true }
			defer func() {
				if !healed {
					heal()
				}
			}()
			replacePod(t, ws)
			condition := waitCondition(t, keyOf(ws), v1beta1.ConditionInferenceReady, c.reason, giveUpTimeout)
			t.Logf("after %.1f s: %s: %s", time.Since(start).Seconds(), condition.Reason, condition.Message)
			waitCondition(t, keyOf(ws), v1beta1.ConditionReady, c.reason, seenTimeout)
			expectNoEndpoint(t, ws)
			start = time.Now()
			heal()
			after := waitReady(t, ws.Namespace, ws.Name)
			elapsed(t, "from healing to ready", start)
			if after.Status.State != v1beta1.StateReady {
				t.Errorf("status.state is %s, want %s", after.Status.State, v1beta1.StateReady)
			}
		})
	}
	expectAnswers(t, ws, tinyModel)
	// The machine is kept all the while.
	local.ledger.expect(t, ws, 1)
}

// replacePod deletes the Workspace's pod and waits until it is gone.
func replacePod(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ws.Namespace, Name: ws.Name + "-0"}}
	if err := local.client.Get(t.Context(), keyOf(pod), pod); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "delete", "pod", pod.Name, "--namespace="+ws.Namespace, "--wait", "--timeout=1m")
}

// expectNoEndpoint checks that the Service leads nowhere.
func expectNoEndpoint(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	slices := &discoveryv1.EndpointSliceList{}
	err := local.client.List(t.Context(), slices, client.InNamespace(ws.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: ws.Name})
	if err != nil {
		t.Fatal(err)
	}
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			if ptr.Deref(endpoint.Conditions.Ready, true) {
				t.Errorf("Service %s leads to %v while the model is not there", ws.Name, endpoint.Addresses)
			}
		}
	}
}
