// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/pkg/diagnosis"
)

// pod returns a changed pod. Without changes, the pod waits only for its engine.
func pod(changes ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "chat-0"},
		Spec: corev1.PodSpec{
			NodeName:       "node-a",
			InitContainers: []corev1.Container{{Name: "weights", Image: "registry.example/agent:1", StartupProbe: &corev1.Probe{}}},
			Containers:     []corev1.Container{{Name: "chat", Image: "registry.example/engine:1", StartupProbe: &corev1.Probe{}}},
		},
		Status: corev1.PodStatus{
			Phase:                 corev1.PodRunning,
			Conditions:            []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "weights", State: running(), Started: new(true), Ready: true}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "chat", State: running(), Started: new(false)}},
		},
	}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func running() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func terminated(code int32, reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}}
}

// engine sets the state of the engine's container, and its earlier ends.
func engine(now corev1.ContainerState, before ...corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0] = status("chat", now, before)
	}
}

// fetching sets the state of the agent's container. The engine waits for the agent.
func fetching(now corev1.ContainerState, before ...corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodPending
		p.Status.InitContainerStatuses[0] = status("weights", now, before)
		p.Status.ContainerStatuses[0] = status("chat", waiting("PodInitializing", ""), nil)
	}
}

func status(name string, now corev1.ContainerState, before []corev1.ContainerState) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: name, State: now, Started: new(false), RestartCount: int32(len(before))}
	for _, state := range before {
		s.LastTerminationState = state
	}
	return s
}

func isReady(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue }

func unscheduled(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeName = ""
		p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message},
		}}
	}
}

func failed(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: message}
	}
}

func node(name string, conditions ...corev1.NodeConditionType) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, condition := range conditions {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: condition, Status: corev1.ConditionTrue})
	}
	return n
}

func one(changes ...func(*corev1.Pod)) diagnosis.Input {
	return diagnosis.Input{Want: 1, Pods: []corev1.Pod{pod(changes...)}, Nodes: []corev1.Node{node("node-a", corev1.NodeReady)}}
}

// signatures returns the built-in signatures.
func signatures(t testing.TB) diagnosis.Signatures {
	t.Helper()
	shipped, err := diagnosis.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	return shipped
}

const (
	schedulerMessage = "0/5 nodes are available: 1 node(s) had untolerated taint {sku: gpu}, 4 Insufficient nvidia.com/gpu. " +
		"no new claims to deallocate, preemption: 0/5 nodes are available: 5 No preemption victims found for incoming pod."
	llamaLog = "0.00.042.979 W srv  llama_server: security: no API key is set\n" +
		"0.00.045.098 E gguf_init_from_file: failed to open GGUF file '/models/a.gguf' (No such file or directory)\n" +
		"0.00.045.210 I srv    operator(): cleaning up before exit...\n" +
		"0.00.045.828 E srv  llama_server: exiting due to model loading error\n"
)

func TestInference(t *testing.T) {
	for _, tc := range []struct {
		reason string
		in     diagnosis.Input
		want   diagnosis.Finding
	}{
		{
			"a ready pod answers", one(isReady),
			diagnosis.Finding{Ready: true, Reason: "WorkspaceInferenceStatusSuccess", Message: "the inference server answers"},
		},
		{
			"a pod that crashed before and is ready now answers",
			one(isReady, engine(running(), terminated(1, "Error", "x"))),
			diagnosis.Finding{Ready: true, Reason: "WorkspaceInferenceStatusSuccess", Message: "the inference server answers"},
		},
		{
			"nothing wanted is not ready",
			diagnosis.Input{},
			pending("the StatefulSet has not created all pods yet: if this persists, kubectl describe statefulset shows why"),
		},
		{
			"no pod yet",
			diagnosis.Input{Want: 1},
			pending("the StatefulSet has not created all pods yet: if this persists, kubectl describe statefulset shows why"),
		},
		{
			"a ready pod on its way out does not count",
			one(isReady, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }),
			pending("the StatefulSet has not created all pods yet: if this persists, kubectl describe statefulset shows why"),
		},
		{
			"one of two pods is missing",
			diagnosis.Input{Want: 2, Pods: []corev1.Pod{pod(isReady)}},
			pending("the StatefulSet has not created all pods yet: if this persists, kubectl describe statefulset shows why"),
		},
		{
			"the scheduler's sentence without its counts", one(unscheduled("Unschedulable", schedulerMessage)),
			finding("Unschedulable", `no node can run pod "chat-0" (Insufficient nvidia.com/gpu, had untolerated taint {sku: gpu}): free a node, allow another machine type, or remove the unmet request`),
		},
		{
			"what the scheduler says while the machine comes up is no news",
			diagnosis.Input{Want: 1, Pods: []corev1.Pod{pod(unscheduled("Unschedulable", schedulerMessage))}, Nodes: []corev1.Node{node("node-a")}},
			pending(diagnosis.WaitsForMachines),
		},
		{
			"a scheduling gate",
			one(unscheduled("SchedulingGated", ""), func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue"}} }),
			pending(`pod "chat-0" is held back by scheduling gate "kueue": the controller or person that uses this gate must remove it`),
		},
		{
			"not scheduled yet", one(func(p *corev1.Pod) { p.Spec.NodeName = ""; p.Status = corev1.PodStatus{} }),
			pending(`pod "chat-0" waits for the scheduler`),
		},
		{
			"an image that is not there",
			one(engine(waiting("ErrImagePull", `rpc error: code = NotFound desc = failed to pull and unpack image "registry.example/engine:1": not found`))),
			finding("ImagePullError", `node "node-a" cannot pull image "registry.example/engine:1" of container "chat", because the registry does not have the image: correct the image's name`),
		},
		{
			"the agent's image, from a registry that wants to know who asks",
			one(fetching(waiting("ImagePullBackOff", `Back-off pulling image "x": ErrImagePull: failed to authorize: 401 Unauthorized`))),
			finding("ImagePullError", `node "node-a" cannot pull image "registry.example/agent:1" of container "weights", because the registry refuses access (401 Unauthorized): correct the name, give the node's identity read access, or name a pull Secret in the ServiceAccount of inference.pod.serviceAccountName`),
		},
		{
			"a registry that is not reached",
			one(engine(waiting("ErrImagePull", `dial tcp: lookup registry.example on 10.0.0.10:53: no such host`))),
			finding("ImagePullError", `node "node-a" cannot pull image "registry.example/engine:1" of container "chat", because the node cannot reach the registry (dial tcp: lookup registry.example on 10.0.0.10:53: no such host): check the image's name, the node's network and the registry's certificate, or use a registry that the nodes reach`),
		},
		{
			"no image reference",
			one(engine(waiting("InvalidImageName", `couldn't parse image name`))),
			finding("ImagePullError", `node "node-a" cannot pull image "registry.example/engine:1" of container "chat", because it is not an image reference: correct the image's name`),
		},
		{
			"the hub is down",
			one(fetching(terminated(1, "Error", `{"reason":"HubUnreachable","message":"fetching \"a/b\" made no progress for 1m0s (read tcp 10.1.2.3:41234->10.0.0.9:443: i/o timeout): check that the hub is up"}`))),
			finding("HubUnreachable", `fetching "a/b" made no progress for 1m0s (read tcp 10.0.0.9:443: i/o timeout): check that the hub is up (retrying)`),
		},
		{
			"the hub refuses, and the agent is between two tries",
			one(fetching(waiting("CrashLoopBackOff", "back-off 40s"), terminated(1, "Error", `{"reason":"Unauthorized","message":"give a token"}`))),
			finding("Unauthorized", `give a token (retrying)`),
		},
		{
			"a missing file, and the agent tries again",
			one(fetching(running(), terminated(1, "Error", `{"reason":"NotFound","message":"correct the file's name"}`))),
			finding("WeightsNotFound", `correct the file's name (retrying)`),
		},
		{
			"a wrong checksum", one(fetching(terminated(1, "Error", `{"reason":"ChecksumMismatch","message":"m"}`))),
			finding("ChecksumMismatch", `m (retrying)`),
		},
		{
			"a full disk", one(fetching(terminated(1, "Error", `{"reason":"DiskFull","message":"m"}`))),
			finding("DiskFull", `m (retrying)`),
		},
		{
			"a reason of a newer agent", one(fetching(terminated(1, "Error", `{"reason":"Tomorrow","message":"m"}`))),
			finding("WeightsFetchFailed", `m (retrying)`),
		},
		{
			"an agent that said nothing structured", one(fetching(terminated(2, "Error", "panic: runtime error"))),
			finding("WeightsFetchFailed", `fetching the weights failed with exit code 2 (panic: runtime error) (retrying)`),
		},
		{
			"too little main memory",
			one(engine(waiting("CrashLoopBackOff", ""), terminated(137, "OOMKilled", ""))),
			finding("ContainerOOMKilled", `container "chat" of pod "chat-0" was killed because node "node-a" ran out of main memory (the container requests none): raise inference.pod.memory, or allow a machine type with more`),
		},
		{
			"the agent was killed for memory",
			one(fetching(terminated(137, "OOMKilled", ""))),
			finding("ContainerOOMKilled", `container "weights" of pod "chat-0" was killed because node "node-a" ran out of main memory (the container requests none): raise inference.pod.memory, or allow a machine type with more`),
		},
		{
			"the engine's first error tells why it ended",
			one(engine(waiting("CrashLoopBackOff", "back-off 10s"), terminated(1, "Error", llamaLog))),
			finding("ContainerCrashLoopBackOff", `container "chat" of pod "chat-0" ended with exit code 1 (gguf_init_from_file: failed to open GGUF file '/models/a.gguf' (No such file or directory)) and restarts: kubectl logs --previous chat-0 -c chat shows more`),
		},
		{
			"too little memory on the GPU",
			one(engine(terminated(1, "Error", "0.01.000.000 E ggml_backend_cuda: allocating 40960.00 MiB on device 0: cudaMalloc failed: out of memory\n"))),
			finding("GPUOutOfMemory", `container "chat" of pod "chat-0" ended with exit code 1, because GPU 0 has no room for 40960.00 MiB more: lower inference.objectives.maxModelLen or .concurrency, or allow more GPUs or GPUs with more memory`),
		},
		{
			"a server that ends well has ended all the same",
			one(engine(waiting("CrashLoopBackOff", ""), terminated(0, "Completed", ""))),
			finding("ContainerCrashLoopBackOff", `container "chat" of pod "chat-0" ended with exit code 0 and restarts: kubectl logs --previous chat-0 -c chat shows more`),
		},
		{
			"a crash that the engine has recovered from is not why it does not answer now",
			one(engine(running(), terminated(1, "Error", "x")), func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Started = new(true) }),
			pending(`pod "chat-0" is starting the engine: kubectl logs chat-0 shows its progress`),
		},
		{
			"a missing Secret",
			one(fetching(waiting("CreateContainerConfigError", `secret "hub-token" not found`))),
			finding("ContainerStartError", `container "weights" of pod "chat-0" cannot start (secret "hub-token" not found): create the missing object or file, or correct its name`),
		},
		{
			"a command that is not in the image",
			one(engine(waiting("CrashLoopBackOff", ""), terminated(128, "StartError", `failed to create containerd task: exec: "serve": executable file not found in $PATH`))),
			finding("ContainerStartError", `container "chat" of pod "chat-0" cannot start (failed to create containerd task: exec: "serve": executable file not found in $PATH): create the missing object or file, or correct its name`),
		},
		{
			"an eviction",
			one(failed("Evicted", "The node was low on resource: ephemeral-storage. Threshold quantity: 1, available: 0. Container chat was using 12Ki")),
			finding("PodEvicted", `pod "chat-0" was evicted from node "node-a" (The node was low on resource: ephemeral-storage): it is created again; if that repeats, allow a machine type with more of that resource`),
		},
		{
			"a pod that the kubelet did not admit",
			one(failed("UnexpectedAdmissionError", "Pod was rejected: Allocate failed due to no healthy devices present")),
			finding("ContainerStartError", `node "node-a" ended pod "chat-0" with UnexpectedAdmissionError (Pod was rejected: Allocate failed due to no healthy devices present): it is created again; if that repeats, see the node's kubelet log`),
		},
		{
			"a node short of disk",
			diagnosis.Input{Want: 1, Pods: []corev1.Pod{pod()}, Nodes: []corev1.Node{node("node-a", corev1.NodeReady, corev1.NodeDiskPressure)}},
			finding("NodeDiskPressure", `node "node-a" is low on disk space: free some, or allow a machine type with a larger disk`),
		},
		{
			"a node short of memory",
			diagnosis.Input{Want: 1, Pods: []corev1.Pod{pod()}, Nodes: []corev1.Node{node("node-a", corev1.NodeReady, corev1.NodeMemoryPressure)}},
			finding("NodeMemoryPressure", `node "node-a" is short of main memory: free some, or allow a machine type with more`),
		},
		{
			"pressure on a node that has none of the pods",
			diagnosis.Input{Want: 1, Pods: []corev1.Pod{pod()}, Nodes: []corev1.Node{node("node-a", corev1.NodeReady), node("node-b", corev1.NodeReady, corev1.NodeDiskPressure)}},
			pending(`pod "chat-0" is starting the engine: kubectl logs chat-0 shows its progress`),
		},
		{
			"a node that went away",
			diagnosis.Input{Want: 1, Pods: []corev1.Pod{pod()}, Nodes: []corev1.Node{node("node-a")}},
			pending(`pod "chat-0" waits for node "node-a" to become ready again: see NodesReady`),
		},
		{
			"images and volumes", one(fetching(waiting("PodInitializing", ""))),
			pending(`node "node-a" is pulling the image of container "weights" in pod "chat-0", or mounting the pod's volumes: if this persists, kubectl describe pod shows why`),
		},
		{
			"nothing reported yet",
			one(func(p *corev1.Pod) { p.Status = corev1.PodStatus{} }),
			pending(`node "node-a" prepares pod "chat-0": if this persists, kubectl describe pod shows why`),
		},
		{
			"weights on their way", one(fetching(running())),
			pending(`pod "chat-0" is fetching weights: its container "weights" serves the progress at /progress`),
		},
		{
			"the engine's image", one(engine(waiting("PodInitializing", ""))),
			pending(`node "node-a" is pulling the image of container "chat" in pod "chat-0", or mounting the pod's volumes: if this persists, kubectl describe pod shows why`),
		},
		{
			"the engine loads", one(),
			pending(`pod "chat-0" is starting the engine: kubectl logs chat-0 shows its progress`),
		},
		{
			"an init container of a user's own template",
			one(fetching(running()), func(p *corev1.Pod) { p.Status.InitContainerStatuses[0].Name = "setup" }),
			pending(`pod "chat-0" runs init container "setup"`),
		},
		{
			"of two pods the one with a problem counts",
			diagnosis.Input{Want: 2, Pods: []corev1.Pod{
				pod(),
				pod(func(p *corev1.Pod) { p.Name = "chat-1" }, engine(waiting("ErrImageNeverPull", ""))),
			}},
			finding("ImagePullError", `node "node-a" cannot pull image "registry.example/engine:1" of container "chat", because it is not on the node and the pull policy is Never: load the image onto the node, or set workspaceImagePullPolicy to IfNotPresent in the chart's values`),
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			tc.in.Signatures = signatures(t)
			if diff := cmp.Diff(tc.want, diagnosis.Inference(tc.in)); diff != "" {
				t.Errorf("Inference: -want +got:\n%s", diff)
			}
		})
	}
}

func pending(message string) diagnosis.Finding {
	return finding("WorkspaceInferenceStatusPending", message)
}

func finding(reason, message string) diagnosis.Finding {
	return diagnosis.Finding{Reason: reason, Message: message}
}

// A repeated failure has the same finding in all its states, so that the controller writes the status once.
func TestFindingsAreStable(t *testing.T) {
	log := func(n int) string {
		return fmt.Sprintf("0.0%d.045.098 E load: mapping at 0x7f%02dab failed\n", n, n)
	}
	pull := "failed to resolve reference: 404: not found"
	for _, tc := range []struct {
		reason string
		phases []diagnosis.Input
	}{
		{
			"a crash loop from the first end to the longest back-off",
			[]diagnosis.Input{
				one(engine(terminated(1, "Error", log(1)))),
				one(engine(waiting("CrashLoopBackOff", "back-off 10s restarting failed container"), terminated(1, "Error", log(1)))),
				one(engine(running(), terminated(1, "Error", log(1)))),
				one(engine(terminated(1, "Error", log(2)), terminated(1, "Error", log(1)))),
				one(engine(waiting("CrashLoopBackOff", "back-off 5m0s restarting failed container"), terminated(1, "Error", log(9)))),
			},
		},
		{
			"an image that is not there",
			[]diagnosis.Input{
				one(engine(waiting("ErrImagePull", "rpc error: code = NotFound desc = "+pull))),
				one(engine(waiting("ImagePullBackOff", `Back-off pulling image "registry.example/engine:1": ErrImagePull: `+pull))),
			},
		},
		{
			"a cluster that grows while the pod fits nowhere",
			[]diagnosis.Input{
				one(unscheduled("Unschedulable", schedulerMessage)),
				one(unscheduled("Unschedulable", "0/16 nodes are available: 12 Insufficient nvidia.com/gpu, 4 node(s) had untolerated taint {sku: gpu}. preemption: not helpful.")),
				one(unscheduled("Unschedulable", "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint {sku: gpu}.")),
			},
		},
		{
			"a hub that stays away",
			[]diagnosis.Input{
				one(fetching(terminated(1, "Error", `{"reason":"HubUnreachable","message":"read tcp 10.1.2.3:41234->10.0.0.9:443: reset"}`))),
				one(fetching(waiting("CrashLoopBackOff", "back-off 20s"), terminated(1, "Error", `{"reason":"HubUnreachable","message":"read tcp 10.1.2.3:50001->10.0.0.9:443: reset"}`))),
				one(fetching(running(), terminated(1, "Error", `{"reason":"HubUnreachable","message":"read tcp 10.1.2.3:50001->10.0.0.9:443: reset"}`))),
			},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			for i := range tc.phases {
				tc.phases[i].Signatures = signatures(t)
			}
			want := diagnosis.Inference(tc.phases[0])
			for i, phase := range tc.phases {
				if diff := cmp.Diff(want, diagnosis.Inference(phase)); diff != "" {
					t.Errorf("phase %d is another finding: -first +this:\n%s", i, diff)
				}
			}
		})
	}
}

// The order of pods and nodes in lists does not matter.
func TestOrderDoesNotMatter(t *testing.T) {
	a := pod(func(p *corev1.Pod) { p.Name, p.Spec.NodeName = "chat-0", "node-a" }, engine(terminated(1, "Error", "a")))
	b := pod(func(p *corev1.Pod) { p.Name, p.Spec.NodeName = "chat-1", "node-b" }, engine(terminated(2, "Error", "b")))
	nodes := []corev1.Node{node("node-a", corev1.NodeReady), node("node-b", corev1.NodeReady)}
	first := diagnosis.Inference(diagnosis.Input{Want: 2, Pods: []corev1.Pod{a, b}, Nodes: nodes})
	second := diagnosis.Inference(diagnosis.Input{Want: 2, Pods: []corev1.Pod{b, a}, Nodes: []corev1.Node{nodes[1], nodes[0]}})
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("-first order +second order:\n%s", diff)
	}
}

// Any text from a container or the scheduler fits into the condition: one line, at most 1024 characters, and the same
// finding the second time.
func FuzzInference(f *testing.F) {
	f.Add(schedulerMessage, llamaLog)
	f.Add("0/1 nodes are available: , 1 , 2 . preemption:", `{"reason":"DiskFull","message":"`+strings.Repeat("ü", 4000)+`"}`)
	f.Add("\x00\xff\n", "{\"reason\":\"NotFound\",\"message\":\"a\\u0000b\\nc\"}")
	f.Add("", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB. GPU 0 has a total capacity of 2 GiB")
	f.Add("", "error: argument --x: \x1b[31m"+strings.Repeat("y", 5000))
	f.Add("", `{"reason":"MemberLost","message":"\u0007\n"}`)
	shipped := signatures(f)
	f.Fuzz(func(t *testing.T, scheduler, log string) {
		for _, in := range []diagnosis.Input{
			one(unscheduled("Unschedulable", scheduler)),
			one(engine(terminated(1, "Error", log))),
			one(engine(waiting("CreateContainerError", log))),
			one(fetching(terminated(1, "Error", log))),
			one(failed("Evicted", log)),
			one(engine(waiting("ImagePullBackOff", log))),
			one(engine(terminated(128, "StartError", log))),
			one(engine(terminated(1, "Error", "error: argument --a: "+log))),
		} {
			in.Signatures = shipped
			got := diagnosis.Inference(in)
			if n := len([]rune(got.Message)); n > 1024 || strings.ContainsFunc(got.Message, unicode.IsControl) || !utf8.ValidString(got.Message) {
				t.Errorf("message of %d characters, or of several lines: %q", n, got.Message)
			}
			if got.Ready || got.Reason == "" || got.Message == "" {
				t.Errorf("a failing pod gives %+v", got)
			}
			if diff := cmp.Diff(got, diagnosis.Inference(in)); diff != "" {
				t.Errorf("the same pod gives another finding: -first +second:\n%s", diff)
			}
		}
	})
}
