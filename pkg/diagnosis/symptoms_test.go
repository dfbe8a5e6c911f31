// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/workload"
)

// lasted returns the state of a container that ended after a run of this length.
func lasted(ran time.Duration, code int32, message string) corev1.ContainerState {
	state := terminated(code, "Error", message)
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	state.Terminated.StartedAt, state.Terminated.FinishedAt = metav1.NewTime(began), metav1.NewTime(began.Add(ran))
	return state
}

// probedFor gives the engine a startup probe and a grace period.
func probedFor(p *corev1.Pod) {
	p.Spec.Containers[0].StartupProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/health"}},
		PeriodSeconds: 2, FailureThreshold: 1801,
	}
	p.Spec.TerminationGracePeriodSeconds = new(int64(120))
}

func asks(name corev1.ResourceName, engine, agent string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		always := corev1.ContainerRestartPolicyAlways
		p.Spec.InitContainers[0].RestartPolicy = &always
		for container, quantity := range map[*corev1.Container]string{&p.Spec.Containers[0]: engine, &p.Spec.InitContainers[0]: agent} {
			if quantity != "" {
				container.Resources.Requests = corev1.ResourceList{name: resource.MustParse(quantity)}
			}
		}
	}
}

func limited(p *corev1.Pod) {
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Gi")}
}

// machine returns a Ready node with these resources.
func machine(allocatable corev1.ResourceList, taints ...corev1.Taint) corev1.Node {
	n := node("node-a", corev1.NodeReady)
	n.Status.Allocatable, n.Spec.Taints = allocatable, taints
	return n
}

// member returns a pod of a group.
func member(name string, changes ...func(*corev1.Pod)) corev1.Pod {
	p := pod(changes...)
	p.Name = name
	return p
}

func TestSymptoms(t *testing.T) {
	const gpu = corev1.ResourceName("nvidia.com/gpu")
	two := resource.MustParse("2")
	noGPU := "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) didn't match Pod's node affinity/selector."
	lost := `{"reason":"MemberLost","message":"chat-0 has not answered for 4s"}`
	for _, tc := range []struct {
		reason string
		in     diagnosis.Input
		want   diagnosis.Finding
	}{
		{
			"an image for another processor",
			one(engine(waiting("ErrImagePull", `rpc error: code = NotFound desc = failed to pull and unpack image "x": no match for platform in manifest: not found`))),
			finding("WrongArchitecture", `node "node-a" cannot pull image "registry.example/engine:1" of container "chat", because it has no build for the node's processor: name an image for that processor, or allow machine types with another processor`),
		},
		{
			"a program for another processor that the runtime does not start",
			one(engine(waiting("CrashLoopBackOff", ""), terminated(128, "StartError", `failed to create containerd task: exec: "/app/llama-server": exec format error`))),
			finding("WrongArchitecture", `container "chat" of pod "chat-0" cannot start, because image registry.example/engine:1 is not built for the machine's processor: set inference.engine.image to a build for that processor, or allow machine types with another processor`),
		},
		{
			"a registry that wants to be asked less",
			one(engine(waiting("ImagePullBackOff", `Back-off pulling image "registry.example/engine:1": ErrImagePull: rpc error: code = Unknown desc = failed to pull and unpack image "registry.example/engine:1": failed to copy: httpReadSeeker: failed open: unexpected status code 429 Too Many Requests`))),
			finding("ImagePullError", `node "node-a" cannot pull image "registry.example/engine:1" of container "chat", because the registry limits the rate of pulls (httpReadSeeker: failed open: unexpected status code 429 Too Many Requests): pull with an account, or from a mirror`),
		},
		{
			"a container at its own limit",
			one(limited, engine(waiting("CrashLoopBackOff", ""), terminated(137, "OOMKilled", ""))),
			finding("ContainerOOMKilled", `container "chat" of pod "chat-0" was killed at its limit of 8Gi of main memory: raise or remove the limit`),
		},
		{
			"a preset's engine at its limit, which follows the request",
			func() diagnosis.Input {
				in := one(limited, engine(waiting("CrashLoopBackOff", ""), terminated(137, "OOMKilled", "")))
				in.Plan = &planner.Plan{Engine: "vllm"}
				return in
			}(),
			finding("ContainerOOMKilled", `container "chat" of pod "chat-0" was killed at its limit of 8Gi of main memory: raise inference.pod.memory, or the default limit of the namespace's LimitRange if that is lower`),
		},
		{
			"a node out of memory, with what was asked for",
			one(asks(corev1.ResourceMemory, "64Gi", ""), engine(waiting("CrashLoopBackOff", ""), terminated(137, "OOMKilled", ""))),
			finding("ContainerOOMKilled", `container "chat" of pod "chat-0" was killed because node "node-a" ran out of main memory (the container requests 64Gi): raise inference.pod.memory, or allow a machine type with more`),
		},
		{
			"killed from outside, by whatever it was",
			one(engine(lasted(time.Minute, 137, "loading"))),
			finding("ContainerCrashLoopBackOff", `container "chat" of pod "chat-0" ended with exit code 137, SIGKILL (loading) and restarts: kubectl describe pod chat-0 shows whether its liveness probe failed or the node ran out of a resource`),
		},
		{
			"a fault of the program",
			one(engine(lasted(time.Minute, 139, ""))),
			finding("ContainerCrashLoopBackOff", `container "chat" of pod "chat-0" ended with exit code 139, SIGSEGV and restarts: kubectl logs --previous chat-0 -c chat shows more`),
		},
		{
			"a start that the kubelet gave up",
			one(probedFor, engine(waiting("CrashLoopBackOff", ""), lasted(time.Hour+5*time.Second, 137, "loading"))),
			finding("StartupTimeout", `container "chat" of pod "chat-0" did not answer /health within 1h0m0s of its start, so the kubelet restarts it: kubectl logs --previous chat-0 -c chat shows how far it got; if that repeats, allow a machine type with a faster disk, or choose a smaller model`),
		},
		{
			"an error of its own at that time is not the kubelet's doing",
			one(probedFor, engine(lasted(time.Hour+5*time.Second, 1, "x"))),
			finding("ContainerCrashLoopBackOff", `container "chat" of pod "chat-0" ended with exit code 1 (x) and restarts: kubectl logs --previous chat-0 -c chat shows more`),
		},
		{
			"nor is an end before the time was over",
			one(probedFor, engine(lasted(59*time.Minute, 137, "x"))),
			finding("ContainerCrashLoopBackOff", `container "chat" of pod "chat-0" ended with exit code 137, SIGKILL (x) and restarts: kubectl describe pod chat-0 shows whether its liveness probe failed or the node ran out of a resource`),
		},
		{
			"an exception among vLLM's lines",
			one(engine(terminated(1, "Error", "(APIServer pid=1) INFO 11-20 10:00:00 [api_server.py:1000] starting\n"+
				"(EngineCore_DP0 pid=71) ERROR 11-20 10:00:09 [core.py:708] KeyError: 'rope_theta'\n(EngineCore_DP0 pid=71) Process EngineCore_DP0:\n"))),
			finding("ContainerCrashLoopBackOff", `container "chat" of pod "chat-0" ended with exit code 1 (KeyError: 'rope_theta') and restarts: kubectl logs --previous chat-0 -c chat shows more`),
		},
		{
			"the machine shows too few GPUs",
			diagnosis.Input{
				Want: 1, Pods: []corev1.Pod{pod(asks(gpu, "4", ""), unscheduled("Unschedulable", noGPU))},
				Nodes: []corev1.Node{machine(corev1.ResourceList{gpu: two})},
			},
			finding("Unschedulable", `no node can run pod "chat-0", because it requests 4 of nvidia.com/gpu, but node "node-a" has only 2: check that the device plugin runs on the node and finds all devices`),
		},
		{
			"engine and agent together ask for more disk than there is",
			diagnosis.Input{
				Want: 1, Pods: []corev1.Pod{pod(asks(corev1.ResourceEphemeralStorage, "60Gi", "60Gi"), unscheduled("Unschedulable", noGPU))},
				Nodes: []corev1.Node{machine(corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("100Gi")})},
			},
			finding("Unschedulable", `no node can run pod "chat-0", because it requests 120Gi of ephemeral-storage, but node "node-a" has only 100Gi: allow a machine type with a larger disk, or use a NodeClass with a larger disk`),
		},
		{
			"a taint that the pod does not tolerate",
			diagnosis.Input{
				Want: 1,
				Pods: []corev1.Pod{pod(unscheduled("Unschedulable", noGPU), func(p *corev1.Pod) {
					p.Spec.Tolerations = []corev1.Toleration{{Key: "sku", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
				})},
				Nodes: []corev1.Node{machine(nil,
					corev1.Taint{Key: "sku", Value: "gpu", Effect: corev1.TaintEffectNoSchedule},
					corev1.Taint{Key: "team", Value: "b", Effect: corev1.TaintEffectPreferNoSchedule},
					corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule})},
			},
			finding("Unschedulable", `no node can run pod "chat-0", because it does not tolerate the taint maintenance:NoSchedule of node "node-a": add a toleration to inference.pod.tolerations, or remove the taint once its cause is gone`),
		},
		{
			"a machine that has it all is taken by others: the scheduler is quoted",
			diagnosis.Input{
				Want: 1, Pods: []corev1.Pod{pod(asks(gpu, "2", ""), unscheduled("Unschedulable", noGPU))},
				Nodes: []corev1.Node{machine(corev1.ResourceList{gpu: two})},
			},
			finding("Unschedulable", `no node can run pod "chat-0" (Insufficient nvidia.com/gpu, didn't match Pod's node affinity/selector): free a node, allow another machine type, or remove the unmet request`),
		},
		{
			"a member that was lost",
			diagnosis.Input{Want: 2, Pods: []corev1.Pod{
				member("chat-0", func(p *corev1.Pod) {
					p.Status.ContainerStatuses[0] = status("chat", waiting("PodInitializing", ""), nil)
				}),
				member("chat-worker-1", fetching(waiting("CrashLoopBackOff", ""), terminated(1, "Error", lost))),
			}},
			finding("MemberLost", `pod "chat-worker-1" ended because its group is incomplete (chat-0 has not answered for 4s): all pods of the group restart together; if that repeats, kubectl logs --previous of the named pod shows why`),
		},
		{
			"a member that was replaced",
			one(fetching(terminated(1, "Error", `{"reason":"MemberReplaced","message":"chat-worker-1 began anew"}`))),
			finding("MemberLost", `pod "chat-0" ended because its group is incomplete (chat-worker-1 began anew): all pods of the group restart together; if that repeats, kubectl logs --previous of the named pod shows why`),
		},
		{
			"of a group, why one member failed goes before that the others miss it",
			diagnosis.Input{Want: 2, Pods: []corev1.Pod{
				member("chat-0", fetching(terminated(1, "Error", lost))),
				member("chat-worker-1", engine(terminated(1, "Error", "RuntimeError: CUDA error: uncorrectable ECC error encountered"))),
			}},
			finding("GPUUnusable", `container "chat" of pod "chat-worker-1" ended with exit code 1, because the GPU is broken: to replace the machine, delete the NodeClaim of the pod's node; to leave a node without one, cordon it and delete the pod`),
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

// The diagnosis finds the agent's container by its name, so the tests must use that name.
func TestAgentContainer(t *testing.T) {
	if got, want := pod().Spec.InitContainers[0].Name, workload.WeightsContainer("chat"); got != want {
		t.Errorf("the tests call the agent's container %q, and it is %q", got, want)
	}
}

// A Workspace may have the name that an agent's container has in another Workspace. Here it is the engine's container.
func TestEngineNamedAsAgentElsewhere(t *testing.T) {
	for _, name := range []string{"weights", "commit"} {
		p := pod(func(p *corev1.Pod) {
			p.Labels = map[string]string{v1beta1.LabelWorkspace: name}
			p.Spec.InitContainers[0].Name, p.Status.InitContainerStatuses[0].Name = name+"-agent", name+"-agent"
			p.Spec.Containers[0].Name = name
			p.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: name, State: waiting("ErrImagePull", "not found")}
		})
		got := diagnosis.Inference(diagnosis.Input{Want: 1, Pods: []corev1.Pod{p}, Plan: &planner.Plan{Engine: "vllm"}, Signatures: signatures(t)})
		if !strings.Contains(got.Message, "engineImages.vllm") {
			t.Errorf("Workspace %q: %s", name, got.Message)
		}
	}
}
