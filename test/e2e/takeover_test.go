// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// The machine of a Workspace as KAITO's controller makes it: a static NodePool in karpenter mode, a NodeClaim with
// gpu-provisioner. NAMESPACE and NAME stand for those of the Workspace.
const (
	kaitoPool = `apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: NAMESPACE-NAME
  labels: {karpenter.kaito.sh/managed-by: kaito, karpenter.kaito.sh/workspace-name: NAME, karpenter.kaito.sh/workspace-namespace: NAMESPACE}
spec:
  replicas: 1
  disruption: {budgets: [{nodes: "1", reasons: [Drifted]}], consolidateAfter: 0s, consolidationPolicy: WhenEmptyOrUnderutilized}
  template:
    metadata:
      labels: {apps: NAME, karpenter.kaito.sh/workspace-name: NAME, karpenter.kaito.sh/workspace-namespace: NAMESPACE}
    spec:
      expireAfter: Never
      nodeClassRef: {group: local.modelberth.dev, kind: LocalNodeClass, name: default}
      requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [Standard_NC24ads_A100_v4]}]
      taints: [{effect: NoSchedule, key: sku, value: gpu}]
`
	kaitoClaim = `apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata:
  name: wsCLAIM
  annotations: {karpenter.sh/do-not-disrupt: "true"}
  labels: {apps: NAME, kaito.sh/workspace: NAME, kaito.sh/workspacenamespace: NAMESPACE, karpenter.sh/nodepool: kaito}
spec:
  expireAfter: Never
  nodeClassRef: {group: local.modelberth.dev, kind: LocalNodeClass, name: default}
  requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [Standard_NC24ads_A100_v4]}]
  resources: {requests: {nvidia.com/gpu: "1"}}
  taints: [{effect: NoSchedule, key: sku, value: gpu}]
`
	// kaitoWorkspace has the marks of KAITO's controller.
	kaitoWorkspace = `apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata:
  name: NAME
  annotations: {workspace.kaito.io/hash: f6d7570679e3a949186995e8438f7cf31c7af0d23411517a1bd96632585e53cf, workspace.kaito.io/revision: "1"}
  finalizers: [workspace.finalizer.kaito.sh]
resource:
  instanceType: Standard_NC24ads_A100_v4
  labelSelector: {matchLabels: {apps: NAME}}
inference:
  preset: {name: tiny-chat}
`
	// kaitoServing are its Services and its StatefulSet. The pod serves with llama.cpp in place of KAITO's image, and is
	// looked at sooner and oftener than KAITO's.
	kaitoServing = `apiVersion: v1
kind: Service
metadata: &meta
  name: NAME
  annotations: {workspace.kaito.io/revision: "1"}
  ownerReferences: [{apiVersion: kaito.sh/v1beta1, kind: Workspace, name: NAME, uid: UID, controller: true, blockOwnerDeletion: true}]
spec:
  publishNotReadyAddresses: true
  selector: {kaito.sh/workspace: NAME, statefulset.kubernetes.io/pod-name: NAME-0}
  ports:
  - {name: http, port: 80, targetPort: 5000}
  - {name: ray, port: 6379, targetPort: 6379}
  - {name: dashboard, port: 8265, targetPort: 8265}
  - {name: kv-events, port: 5557, targetPort: 5557}
---
apiVersion: v1
kind: Service
metadata:
  name: NAME-headless
  ownerReferences: [{apiVersion: kaito.sh/v1beta1, kind: Workspace, name: NAME, uid: UID, controller: true, blockOwnerDeletion: true}]
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {kaito.sh/workspace: NAME}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: NAME
  annotations: {workspace.kaito.io/revision: "1"}
  ownerReferences: [{apiVersion: kaito.sh/v1beta1, kind: Workspace, name: NAME, uid: UID, controller: true, blockOwnerDeletion: true}]
spec:
  replicas: 1
  podManagementPolicy: Parallel
  serviceName: NAME-headless
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Retain}
  selector: {matchLabels: {kaito.sh/workspace: NAME}}
  template:
    metadata:
      labels: {kaito.sh/workspace: NAME}
    spec:
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms: [{matchExpressions: [{key: apps, operator: In, values: [NAME]}]}]
      tolerations:
      - {effect: NoSchedule, key: nvidia.com/gpu, operator: Exists}
      - {effect: NoSchedule, key: sku, operator: Equal, value: gpu}
      terminationGracePeriodSeconds: 30
      initContainers:
      - name: weights
        image: ` + clientImage + `
        command: [curl, --fail, --silent, --location, --retry, "20", --retry-all-errors, --output, /workspace/weights/model.gguf]
        args: [http://hub.local:8081/modelberth/tiny-chat-GGUF/resolve/main/tiny-chat-f16.gguf]
        volumeMounts: [{mountPath: /workspace/weights, name: model-weights-volume}]
      containers:
      - name: NAME
        image: ` + clientImage + `
        command: [llama-server, --model, /workspace/weights/model.gguf, --alias, tiny-chat, --host, 0.0.0.0, --port, "5000"]
        ports: [{containerPort: 5000, name: http}, {containerPort: 5557, name: kv-events}]
        startupProbe: {failureThreshold: 180, periodSeconds: 1, httpGet: {path: /health, port: 5000}}
        livenessProbe: {failureThreshold: 3, periodSeconds: 10, timeoutSeconds: 10, httpGet: {path: /health, port: 5000}}
        readinessProbe: {failureThreshold: 3, periodSeconds: 2, timeoutSeconds: 10, httpGet: {path: /health, port: 5000}}
        resources: {limits: {nvidia.com/gpu: "1"}, requests: {nvidia.com/gpu: "1"}}
        volumeMounts: [{mountPath: /workspace/weights, name: model-weights-volume}, {mountPath: /dev/shm, name: dshm}]
      volumes:
      - {name: dshm, emptyDir: {medium: Memory}}
      - {name: model-weights-volume, emptyDir: {}}
`
)

// formerly is a Workspace that KAITO's controller served, with a client that asks all the time.
type formerly struct {
	ns, name, machine string

	ws      *v1beta1.Workspace
	clients *askers
}

// fill replaces the names in a manifest.
func (f *formerly) fill(manifest string) string {
	uid := ""
	if f.ws != nil {
		uid = string(f.ws.UID)
	}
	return strings.NewReplacer("NAMESPACE", f.ns, "NAME", f.name, "UID", uid, "CLAIM", strings.ReplaceAll(f.ns[len("e2e-"):]+f.name[len("chat-"):], "-", "")).
		Replace(manifest)
}

// kaitoMade applies what KAITO's controller made before there were policies: one of them lets only controllers of the
// cluster write its labels into pods.
func (f *formerly) kaitoMade(t *testing.T, manifest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(f.fill(manifest)), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "--as=system:kube-controller-manager", "--as-group=system:masters", "--namespace="+f.ns, "--filename="+file)
}

// holdings are the pods, containers, machines and objects of a Workspace, with what would change in a restart.
func (f *formerly) holdings(t *testing.T) []string {
	t.Helper()
	var out []string
	pod := &corev1.Pod{}
	if err := local.client.Get(t.Context(), types.NamespacedName{Namespace: f.ns, Name: f.name + "-0"}, pod); err != nil {
		t.Fatal(err)
	}
	out = append(out, fmt.Sprint("pod ", pod.UID, " on ", pod.Spec.NodeName))
	for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		out = append(out, fmt.Sprint(status.Name, " ", status.ContainerID, " restarted ", status.RestartCount))
	}
	out = append(out, kubectl(t, "get", "statefulsets,services", "--namespace="+f.ns,
		"--output=jsonpath={range .items[?(@.metadata.ownerReferences[0].uid=='"+string(f.ws.UID)+"')]}{.kind} {.metadata.name} {.metadata.uid} {.metadata.generation} {.spec.clusterIP} {end}"))
	return append(out, f.machines(t)...)
}

// machines are KAITO's NodePools and NodeClaims of a Workspace.
func (f *formerly) machines(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, label := range []string{
		v1beta1.LabelMachineWorkspaceName + "=" + f.name + "," + v1beta1.LabelMachineWorkspaceNamespace + "=" + f.ns,
		v1beta1.LabelWorkspace + "=" + f.name + "," + v1beta1.LabelWorkspaceNamespace + "=" + f.ns,
	} {
		out = append(out, strings.Fields(kubectl(t, "get", "nodepools,nodeclaims", "--selector="+label+",!"+v1beta1.LabelWorkspaceUID,
			"--output=jsonpath={range .items[*]}{.kind}/{.metadata.name}/{.metadata.uid}{\"\\n\"}{end}"))...)
	}
	return out
}

// until waits until a condition is true for a reason.
func (f *formerly) until(t *testing.T, kind, reason string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%s of %s to be true for the reason %s", kind, f.name, reason), readyTimeout, func(ctx context.Context) (bool, error) {
		ws := &v1beta1.Workspace{}
		if err := local.client.Get(ctx, types.NamespacedName{Namespace: f.ns, Name: f.name}, ws); err != nil {
			return false, err
		}
		found := meta.FindStatusCondition(ws.Status.Conditions, kind)
		if found == nil || found.Status != metav1.ConditionTrue || found.Reason != reason {
			return false, fmt.Errorf("it is %+v", found)
		}
		return true, nil
	})
}

// askers ask one Service all the time.
type askers struct {
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	answered int
	failures []string
}

// ask starts a client of a Service. Every third request comes on a connection of its own.
func ask(t *testing.T, node, address string) *askers {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a := &askers{cancel: cancel}
	transport := inside(t, node)
	client := &http.Client{Transport: transport, Timeout: 20 * time.Second}
	a.running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			if n%3 == 0 {
				transport.CloseIdleConnections()
			}
			problem := once(context.WithoutCancel(ctx), client, "http://"+address+chatPath)
			a.mu.Lock()
			if problem == "" {
				a.answered++
			} else {
				a.failures = append(a.failures, time.Now().Format("15:04:05.000 ")+problem)
			}
			a.mu.Unlock()
			pause(ctx, 4*loadPause)
		}
	})
	t.Cleanup(a.stop)
	return a
}

func once(ctx context.Context, client *http.Client, url string) (problem string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(chat(tinyModel, 2, false)))
	if err != nil {
		return err.Error()
	}
	answer, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(text), `"completion_tokens"`) {
		return fmt.Sprintf("%d %s %v", answer.StatusCode, text, err)
	}
	return ""
}

func (a *askers) stop() {
	a.cancel()
	a.running.Wait()
}

// expectAllAnswered waits for further answers, and fails the test if a request has failed.
func (a *askers) expectAllAnswered(t *testing.T, what string) {
	t.Helper()
	count := func() (int, []string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.answered, a.failures
	}
	before, _ := count()
	waitFor(t, "answers", seenTimeout, func(context.Context) (bool, error) {
		now, failures := count()
		return now >= before+3 || len(failures) > 0, nil
	})
	if _, failures := count(); len(failures) > 0 {
		t.Errorf("%s: %d requests failed, the first: %s", what, len(failures), failures[0])
	}
}

// TestTakeover has four Workspaces of KAITO's, two of each mode, serve while they are taken over, given back, and taken
// over again: no pod restarts, nothing is bought, and no request fails. The first edit rolls into our pods, and the end of
// each Workspace releases KAITO's machines.
func TestTakeover(t *testing.T) {
	ns, start := namespace(t), time.Now()
	kubectl(t, "label", "namespace", ns, "pod-security.kubernetes.io/enforce-") // KAITO's pods meet no level
	all := []*formerly{
		{ns: ns, name: "chat-1", machine: kaitoPool},
		{ns: ns, name: "chat-2", machine: kaitoClaim},
		{ns: ns, name: "chat-3", machine: kaitoPool},
		{ns: ns, name: "chat-4", machine: kaitoClaim},
	}
	t.Cleanup(func() { deleteMachinesOfKAITO(t, ns) })
	kaitoServes(t, all)
	elapsed(t, "four Workspaces in KAITO's form, until they serve", start)
	before := map[string][]string{}
	for _, f := range all {
		before[f.name] = f.holdings(t)
		f.until(t, v1beta1.ConditionStalled, v1beta1.ReasonServedByKAITO)
	}
	stays := func(what string) {
		t.Helper()
		for _, f := range all {
			if diff := cmp.Diff(before[f.name], f.holdings(t)); diff != "" {
				t.Errorf("%s changed %s (-before +after):\n%s", what, f.name, diff)
			}
			local.ledger.expect(t, f.ws, 0)
			f.clients.expectAllAnswered(t, what+" of "+f.name)
		}
	}

	start = time.Now()
	berth(t, ns, "adopt", "--all")
	for _, f := range all {
		f.until(t, v1beta1.ConditionReady, v1beta1.ReasonFrozen)
	}
	stays("the takeover")
	berth(t, ns, "adopt", "--all", "--undo")
	for _, f := range all {
		f.until(t, v1beta1.ConditionStalled, v1beta1.ReasonServedByKAITO)
	}
	stays("the undo")
	berth(t, ns, "adopt", "chat-1", "chat-2", "chat-3", "chat-4")
	for _, f := range all {
		f.until(t, v1beta1.ConditionReady, v1beta1.ReasonFrozen)
	}
	stays("the second takeover")
	elapsed(t, "four takeovers, undone and done again", start)

	edited, frozen := all[:2], all[2:]
	start = time.Now()
	for _, f := range edited {
		kubectl(t, "patch", "workspace", f.name, "--namespace="+ns, "--type=merge", `--patch={"inference":{"engine":{"args":{"seed":"3"}}}}`)
	}
	for _, f := range edited {
		expectRolled(t, f, before[f.name])
	}
	elapsed(t, "two first edits, until our pods serve and KAITO's machines are gone", start)
	for _, f := range frozen {
		if diff := cmp.Diff(before[f.name], f.holdings(t)); diff != "" {
			t.Errorf("the edits of others changed %s (-before +after):\n%s", f.name, diff)
		}
		f.clients.expectAllAnswered(t, "the edits of others, for "+f.name)
		f.clients.stop()
	}

	start = time.Now()
	kubectl(t, "delete", "workspace", "--all", "--namespace="+ns, "--timeout="+goneTimeout.String())
	elapsed(t, "the deletion of four Workspaces", start)
	for _, f := range all {
		if left := f.machines(t); len(left) > 0 {
			t.Errorf("%s is gone, and its machines are not: %v", f.name, left)
		}
		expectGone(t, f.ws)
	}
}

// kaitoServes makes the machines of Workspaces, then the Workspaces and what serves, and starts their clients.
func kaitoServes(t *testing.T, all []*formerly) {
	t.Helper()
	for _, f := range all { // before the Workspaces, for which nothing is to be bought
		f.kaitoMade(t, f.machine)
	}
	leader := waitLeader(t)
	for _, f := range all {
		f.kaitoMade(t, kaitoWorkspace)
		f.ws = workspace(t, f.ns, f.name)
		f.kaitoMade(t, kaitoServing)
	}
	for _, f := range all {
		kubectl(t, "rollout", "status", "statefulset/"+f.name, "--namespace="+f.ns, "--timeout="+readyTimeout.String())
		service := &corev1.Service{}
		if err := local.client.Get(t.Context(), keyOf(f.ws), service); err != nil {
			t.Fatal(err)
		}
		f.clients = ask(t, leader.Spec.NodeName, service.Spec.ClusterIP)
		f.clients.expectAllAnswered(t, "KAITO's pod of "+f.name)
	}
}

// expectRolled waits until our pods serve after an edit and KAITO's machines are gone. The Service keeps its address.
func expectRolled(t *testing.T, f *formerly, before []string) {
	t.Helper()
	f.until(t, v1beta1.ConditionReady, v1beta1.ReasonServing)
	waitFor(t, "KAITO's machines of "+f.name+" to be gone", goneTimeout, func(ctx context.Context) (bool, error) {
		ws := &v1beta1.Workspace{}
		err := local.client.Get(ctx, keyOf(f.ws), ws)
		_, isLeft := ws.Annotations[v1beta1.AnnotationAdopted]
		return err == nil && !isLeft && len(f.machines(t)) == 0, err
	})
	local.ledger.expect(t, f.ws, 1)
	pod := &corev1.Pod{}
	if err := local.client.Get(t.Context(), client.ObjectKey{Namespace: f.ns, Name: f.name + "-0"}, pod); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(before[0], string(pod.UID)) || pod.Labels[v1beta1.LabelManagedBy] != v1beta1.ManagedBy {
		t.Errorf("the pod after the edit has the UID %s and labels %v; it was %s", pod.UID, pod.Labels, before[0])
	}
	f.clients.stop() // it lost answers while its pod was replaced
	service := &corev1.Service{}
	if err := local.client.Get(t.Context(), keyOf(f.ws), service); err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(before, " "); !strings.Contains(all, service.Spec.ClusterIP) || !strings.Contains(all, string(service.UID)) || len(service.Spec.Ports) != 1 {
		t.Errorf("Service %s is %s with ports %v; want the same with port 80 alone: %s", service.Name, service.Spec.ClusterIP, service.Spec.Ports, all)
	}
	expectAnswers(t, f.ws, tinyModel)
	f.ws = workspace(t, f.ns, f.name)
}

// deleteMachinesOfKAITO deletes what a failed test leaves.
func deleteMachinesOfKAITO(t *testing.T, ns string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), goneTimeout)
	defer cancel()
	for _, label := range []string{v1beta1.LabelMachineWorkspaceNamespace, v1beta1.LabelWorkspaceNamespace} {
		if _, err := execute(ctx, local.kubectl, "delete", "nodepools,nodeclaims", "--selector="+label+"="+ns); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	}
}
