// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// TestNamesOfTheContract has the names that clients of KAITO use, each written out here: our constants may move, the
// names may not.
func TestNamesOfTheContract(t *testing.T) {
	w := enter(t)
	w.begin(t, faults.NewRecorder())
	ws := kaitoForm(w.namespace(t), "chat")
	ws.Labels = map[string]string{"inferenceset.kaito.sh/created-by": "chat-set"}
	ws.Inference.Preset.Name = "mistral-7b" // an alias of a model of another name, served by vllm
	ws.Inference.Config = "settings"
	ws.Inference.Adapters = []v1beta1.AdapterSpec{{Source: &v1beta1.DataSource{Name: "my.adapter", Image: "registry.example/adapter:1"}}}
	if err := w.client.Create(t.Context(), configMap(ws.Namespace, "vllm:\n  seed: 7\n")); err != nil {
		t.Fatal(err)
	}
	w.create(t, ws)
	w.untilServing(t, ws)
	facts := map[string]string{}
	workspaceFacts(ws, facts)
	w.podFacts(t, ws, facts)
	w.serviceFacts(t, ws, facts)
	w.machineFacts(t, ws, facts)
	if diff := cmp.Diff(contract(), facts); diff != "" {
		t.Errorf("names of the contract (-want +got):\n%s", diff)
	}
	w.remove(t, ws)
}

// contract has the texts to look for.
func contract() map[string]string {
	return map[string]string{
		"finalizers":                                             "workspace.finalizer.kaito.sh",
		"condition NodeClaimReady":                               "True NodeClaimsReady",
		"condition NodesReady":                                   "True NodesReady",
		"condition ResourceReady":                                "True workspaceResourceStatusSuccess",
		"condition InferenceReady":                               "True WorkspaceInferenceStatusSuccess",
		"condition WorkspaceSucceeded":                           "True workspaceSucceeded",
		"status.state":                                           "Ready",
		"status.targetNodeCount":                                 "1",
		"status.workerNodes":                                     "1",
		"status.endpoint.models":                                 "chat-set mistral-7b-v0.3 mistral-7b mistralai/Mistral-7B-v0.3 my.adapter",
		"StatefulSet label kaito.sh/workspace":                   "chat",
		"StatefulSet annotation workspace.kaito.io/revision":     "set",
		"StatefulSet selector":                                   "kaito.sh/workspace=chat",
		"pod label kaito.sh/workspace":                           "chat",
		"pod label inferenceset.kaito.sh/created-by":             "chat-set",
		"pod container":                                          "chat",
		"pod ports":                                              "http=5000",
		"pod probe":                                              "/health:5000",
		"pod mount /mnt/config":                                  "ConfigMap settings",
		"pod mount /mnt/adapter/my.adapter":                      "read-only",
		"pod toleration sku":                                     "gpu",
		"pod argument --seed":                                    "7",
		"Service ports":                                          "http=80→5000",
		"Service selector":                                       "apps.kubernetes.io/pod-index=0 kaito.sh/workspace=chat",
		"ControllerRevision label workspace.kaito.io/name":       "chat",
		"ControllerRevision annotation workspace.kaito.io/hash":  "set",
		"NodeClaim label karpenter.kaito.sh/workspace-name":      "chat",
		"NodeClaim label karpenter.kaito.sh/workspace-namespace": "namespace",
		"NodeClaim label kaito.sh/workspace":                     "",
		"NodeClaim annotation karpenter.sh/do-not-disrupt":       "true",
		"NodeClaim taint":                                        "sku=gpu:NoSchedule modelberth.dev/workspace-uid=UID:NoSchedule",
	}
}

func workspaceFacts(ws *v1beta1.Workspace, facts map[string]string) {
	facts["finalizers"] = strings.Join(ws.Finalizers, " ")
	for _, kind := range []string{"NodeClaimReady", "NodesReady", "ResourceReady", "InferenceReady", "WorkspaceSucceeded"} {
		found := condition(ws, kind)
		facts["condition "+kind] = string(found.Status) + " " + found.Reason
	}
	facts["status.state"] = string(ws.Status.State)
	facts["status.targetNodeCount"] = fmt.Sprint(ws.Status.TargetNodeCount)
	facts["status.workerNodes"] = fmt.Sprint(len(ws.Status.WorkerNodes))
	facts["status.endpoint.models"] = strings.Join(ws.Status.Endpoint.Models, " ")
}

func (w *world) podFacts(t *testing.T, ws *v1beta1.Workspace, facts map[string]string) {
	t.Helper()
	set := &appsv1.StatefulSet{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: ws.Namespace, Name: "chat"}, set); err != nil {
		t.Fatal(err)
	}
	facts["StatefulSet label kaito.sh/workspace"] = set.Labels["kaito.sh/workspace"]
	facts["StatefulSet annotation workspace.kaito.io/revision"] = isSet(set.Annotations["workspace.kaito.io/revision"])
	facts["StatefulSet selector"] = pairs(set.Spec.Selector.MatchLabels)
	pod := set.Spec.Template
	for _, key := range []string{"kaito.sh/workspace", "inferenceset.kaito.sh/created-by"} {
		facts["pod label "+key] = pod.Labels[key]
	}
	engine := pod.Spec.Containers[0]
	facts["pod container"] = engine.Name
	var ports []string
	for _, port := range engine.Ports {
		ports = append(ports, fmt.Sprintf("%s=%d", port.Name, port.ContainerPort))
	}
	facts["pod ports"] = strings.Join(ports, " ")
	probe := engine.ReadinessProbe.HTTPGet
	facts["pod probe"] = fmt.Sprintf("%s:%s", probe.Path, probe.Port.String())
	for _, mount := range engine.VolumeMounts {
		switch mount.MountPath {
		case "/mnt/config":
			at := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
			facts["pod mount /mnt/config"] = "ConfigMap " + pod.Spec.Volumes[at].ConfigMap.Name
		case "/mnt/adapter/my.adapter":
			facts["pod mount /mnt/adapter/my.adapter"] = map[bool]string{true: "read-only"}[mount.ReadOnly]
		}
	}
	for _, toleration := range pod.Spec.Tolerations {
		if toleration.Key == "sku" {
			facts["pod toleration sku"] = toleration.Value
		}
	}
	if at := slices.Index(engine.Args, "--seed"); at >= 0 {
		facts["pod argument --seed"] = engine.Args[at+1]
	}
}

func (w *world) serviceFacts(t *testing.T, ws *v1beta1.Workspace, facts map[string]string) {
	t.Helper()
	service := &corev1.Service{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: ws.Namespace, Name: "chat"}, service); err != nil {
		t.Fatal(err)
	}
	var ports []string
	for _, port := range service.Spec.Ports {
		ports = append(ports, fmt.Sprintf("%s=%d→%s", port.Name, port.Port, port.TargetPort.String()))
	}
	facts["Service ports"], facts["Service selector"] = strings.Join(ports, " "), pairs(service.Spec.Selector)
}

func (w *world) machineFacts(t *testing.T, ws *v1beta1.Workspace, facts map[string]string) {
	t.Helper()
	revisions, claims := &appsv1.ControllerRevisionList{}, &karpv1.NodeClaimList{}
	if err := w.client.List(t.Context(), revisions, client.InNamespace(ws.Namespace)); err != nil {
		t.Fatal(err)
	}
	if err := w.client.List(t.Context(), claims, client.MatchingLabels{"karpenter.kaito.sh/workspace-namespace": ws.Namespace}); err != nil {
		t.Fatal(err)
	}
	if len(revisions.Items) != 1 || len(claims.Items) != 1 {
		t.Fatalf("%d ControllerRevisions and %d NodeClaims, want one each", len(revisions.Items), len(claims.Items))
	}
	revision, claim := revisions.Items[0], claims.Items[0]
	facts["ControllerRevision label workspace.kaito.io/name"] = revision.Labels["workspace.kaito.io/name"]
	facts["ControllerRevision annotation workspace.kaito.io/hash"] = isSet(revision.Annotations["workspace.kaito.io/hash"])
	facts["NodeClaim label karpenter.kaito.sh/workspace-name"] = claim.Labels["karpenter.kaito.sh/workspace-name"]
	facts["NodeClaim label karpenter.kaito.sh/workspace-namespace"] = "namespace" // it was found by it
	facts["NodeClaim label kaito.sh/workspace"] = claim.Labels["kaito.sh/workspace"]
	facts["NodeClaim annotation karpenter.sh/do-not-disrupt"] = claim.Annotations["karpenter.sh/do-not-disrupt"]
	var taints []string
	for _, taint := range claim.Spec.Taints {
		taints = append(taints, strings.ReplaceAll(taint.ToString(), string(ws.UID), "UID"))
	}
	facts["NodeClaim taint"] = strings.Join(taints, " ")
}

func isSet(value string) string {
	if value == "" {
		return ""
	}
	return "set"
}

// pairs writes labels in the order of their keys.
func pairs(labels map[string]string) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, key+"="+labels[key])
	}
	return strings.Join(out, " ")
}
