// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/charts"
	"github.com/modelberth/modelberth/pkg/cli"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
)

// noon is the present time of every test.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

// cluster is a fake cluster.
type cluster struct {
	objects []client.Object
	faults  interceptor.Funcs
	pods    *pods
	server  cli.Server
	// unreachable is the error of a failed connection.
	unreachable error
}

// pods answers for all pods.
type pods struct {
	mu sync.Mutex
	// progress is the agents' answer; nil means no answer.
	progress func(ctx context.Context) ([]byte, error)
	log      func(pod types.NamespacedName, options *corev1.PodLogOptions) (string, error)
	address  string
	forward  error
	asked    []string
}

func (p *pods) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, fmt.Sprintf(format, args...))
}

func (p *pods) Log(_ context.Context, pod types.NamespacedName, options *corev1.PodLogOptions) (io.ReadCloser, error) {
	text, err := p.log(pod, options)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

func (p *pods) Get(ctx context.Context, pod types.NamespacedName, port int32, path string) ([]byte, error) {
	p.note("GET %s:%d/%s", pod, port, path)
	if p.progress == nil {
		return nil, errors.New("no route to the pod")
	}
	return p.progress(ctx)
}

func (p *pods) Forward(_ context.Context, pod types.NamespacedName, port int32) (string, error) {
	p.note("forward %s:%d", pod, port)
	return p.address, p.forward
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	out := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1beta1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, admissionv1.AddToScheme,
	} {
		if err := add(out); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// client returns a client of the cluster's objects.
func (c *cluster) client(t *testing.T) client.WithWatch {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(c.objects...).
		WithStatusSubresource(&v1beta1.Workspace{}).WithInterceptorFuncs(c.faults).Build()
}

// session has the surroundings of a command for a Workspace.
type session struct {
	stdin     string
	terminal  bool
	typing    bool
	width     int
	height    int
	env       map[string]string
	clock     clock.WithTicker
	objects   client.WithWatch
	out       io.Writer
	context   context.Context
	interrupt func(context.Context) (context.Context, context.CancelFunc)
	// presets are the catalogue; nil means the tests' catalogue.
	presets fs.FS
}

func (c *cluster) run(t *testing.T, s session, args ...string) ran {
	t.Helper()
	if c.pods == nil {
		c.pods = &pods{}
	}
	if s.objects == nil {
		s.objects = c.client(t)
	}
	if s.clock == nil {
		s.clock = clocktesting.NewFakeClock(noon)
	}
	if s.context == nil {
		s.context = t.Context()
	}
	if s.presets == nil {
		s.presets = os.DirFS("testdata/catalog")
	}
	var out, err bytes.Buffer
	if s.out == nil {
		s.out = &out
	}
	code := cli.Main(s.context, args, cli.World{
		In: strings.NewReader(s.stdin), Out: s.out, Err: &err, Getenv: func(name string) string { return s.env[name] },
		Presets: s.presets, Chart: charts.FS(), Terminal: s.terminal, Typing: s.typing, Clock: s.clock,
		Size:      func() (int, int) { return s.width, s.height },
		Interrupt: s.interrupt, Settings: describedSettings,
		Cluster: func(flags *genericclioptions.ConfigFlags, _ io.Writer) (*cli.Cluster, error) {
			namespace := "team-a"
			if *flags.Namespace != "" {
				namespace = *flags.Namespace
			}
			return &cli.Cluster{Namespace: namespace, Objects: s.objects, Pods: c.pods, Server: c.server}, c.unreachable
		},
	})
	return ran{Out: out.String(), Err: err.String(), Code: code}
}

// workspace returns a Workspace with an accepted plan.
func workspace(change ...func(*v1beta1.Workspace)) *v1beta1.Workspace {
	ws := &v1beta1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat", UID: "uid-1", Generation: 2, CreationTimestamp: ago(10 * time.Minute)},
		Inference:  &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "small-chat"}},
	}
	ws.Status = v1beta1.WorkspaceStatus{
		ObservedGeneration: 2, State: v1beta1.StatePending,
		Plan: &v1beta1.PlanStatus{
			Revision: "chat-2", Summary: "1 × Standard_A24_1 (1 × A24)", InstanceType: "Standard_A24_1", Nodes: 1, HourlyPrice: "1.5",
			CapacityType: v1beta1.CapacityOnDemand, Engine: "vllm", TensorParallel: 1, MaxModelLen: 8192, Concurrency: 4,
			Memory: &v1beta1.PlanMemory{Total: "22.20", Weights: "14.97", KVCache: "4.00", Overhead: "1.90", Free: "1.33", Basis: "estimated"},
			Performance: &v1beta1.PlanPerformance{
				InputTokens: 1024, OutputTokens: 256, Concurrency: 4, TimeToFirstToken: "412.345ms", TimePerOutputToken: "28.1234ms",
				OutputTokensPerSecond: "131.4159", Basis: v1beta1.BasisEstimated,
			},
		},
		Startup: []v1beta1.StartupStage{
			{Stage: v1beta1.StagePlanned, StartTime: ago(10 * time.Minute), EndTime: new(ago(599 * time.Second))},
			{Stage: v1beta1.StageMachine, StartTime: ago(599 * time.Second)},
		},
	}
	condition(ws, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonProgressing, "waiting for 1 of 1 machines of type Standard_A24_1")
	for _, c := range change {
		c(ws)
	}
	return ws
}

func condition(ws *v1beta1.Workspace, kind string, status metav1.ConditionStatus, reason, message string) {
	for i := range ws.Status.Conditions {
		if ws.Status.Conditions[i].Type == kind {
			ws.Status.Conditions = append(ws.Status.Conditions[:i], ws.Status.Conditions[i+1:]...)
			break
		}
	}
	ws.Status.Conditions = append(ws.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: ws.Generation, LastTransitionTime: ago(time.Minute),
	})
}

// refused adds a refused attempt before the open one.
func refused(ws *v1beta1.Workspace) {
	ws.Status.Attempts = []v1beta1.Attempt{
		{
			Number: 1, InstanceType: "Standard_B80_1", CapacityType: v1beta1.CapacityOnDemand, Zone: "eastus-2", StartTime: ago(9 * time.Minute),
			EndTime: new(ago(8 * time.Minute)), Reason: v1beta1.ReasonQuota,
			Message: "Operation could not be completed as it results in exceeding approved standardB80Family Cores quota",
			Fix:     "ask for more quota of family B80 in eastus",
		},
		{Number: 2, InstanceType: "Standard_A24_1", CapacityType: v1beta1.CapacityOnDemand, StartTime: ago(8 * time.Minute)},
	}
}

// surging makes the Workspace serve on one machine while it gets another.
func surging(ws *v1beta1.Workspace) {
	serving(ws)
	ws.Status.State = v1beta1.StateNotReady
	ws.Status.Plan.InstanceType, ws.Status.Plan.Summary = "Standard_B80_1", "1 × Standard_B80_1 (1 × B80)"
	ws.Status.Attempts = []v1beta1.Attempt{
		{
			Number: 1, InstanceType: "Standard_A24_1", CapacityType: v1beta1.CapacityOnDemand, NodeClaims: []string{"chat-1a2b"},
			StartTime: ago(9 * time.Minute), ReadyTime: new(ago(8 * time.Minute)),
		},
		{
			Number: 2, InstanceType: "Standard_B80_1", CapacityType: v1beta1.CapacityOnDemand, NodeClaims: []string{"chat-3c4d"},
			StartTime: ago(time.Minute),
		},
	}
	condition(ws, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonNodeClaimNotReady,
		"machine chat-3c4d (Standard_B80_1) is being launched; meanwhile attempt 1 (Standard_A24_1) continues to serve")
}

// loading makes the Workspace have its machine and fetch the weights.
func loading(ws *v1beta1.Workspace) {
	refused(ws)
	ws.Status.Attempts[1].ReadyTime = new(ago(7 * time.Minute))
	ws.Status.WorkerNodes = []string{"node-1"}
	ws.Status.Startup = []v1beta1.StartupStage{
		{Stage: v1beta1.StagePlanned, StartTime: ago(600 * time.Second), EndTime: new(ago(599 * time.Second))},
		{Stage: v1beta1.StageMachine, StartTime: ago(599 * time.Second), EndTime: new(ago(420 * time.Second))},
		{Stage: v1beta1.StageEngine, StartTime: ago(420 * time.Second)},
	}
	condition(ws, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonInferencePending,
		`pod "chat-0" is fetching weights: its container "weights" serves the progress at /progress`)
}

// serving makes the Workspace ready.
func serving(ws *v1beta1.Workspace) {
	ws.Status.State = v1beta1.StateReady
	ws.Status.Endpoint = &v1beta1.Endpoint{URL: "http://chat.team-a.svc", Models: []string{"small-chat", "made-up/Small-Chat"}}
	ws.Status.Startup = []v1beta1.StartupStage{
		{Stage: v1beta1.StagePlanned, StartTime: ago(600 * time.Second), EndTime: new(ago(599 * time.Second))},
		{Stage: v1beta1.StageMachine, StartTime: ago(599 * time.Second), EndTime: new(ago(500 * time.Second))},
		{Stage: v1beta1.StageEngine, StartTime: ago(500 * time.Second), EndTime: new(ago(440 * time.Second))},
		{Stage: v1beta1.StageReady, StartTime: ago(440 * time.Second), EndTime: new(ago(440 * time.Second))},
	}
	condition(ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing, "answers at http://chat.team-a.svc/v1")
}

func stalled(ws *v1beta1.Workspace) {
	condition(ws, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonQuota, "the quota of family B80 is used up; ask for more")
	condition(ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonQuota, "the quota of family B80 is used up; ask for more")
}

// claim returns a NodeClaim that has reached the given stages, with the reason why it waits for the next.
func claim(name, node, waits string, reached ...string) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	out.SetGroupVersionKind(schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodeClaim"})
	out.SetName(name)
	out.SetCreationTimestamp(ago(8 * time.Minute))
	out.SetLabels(map[string]string{
		v1beta1.LabelWorkspaceUID: "uid-1", corev1.LabelInstanceTypeStable: "Standard_A24_1", corev1.LabelTopologyZone: "eastus-1",
		"karpenter.sh/capacity-type": "on-demand",
	})
	conditions := []any{}
	for i, stage := range []string{"Launched", "Registered", "Initialized"} {
		entry := map[string]any{"type": stage, "status": "True"}
		if i >= len(reached) {
			entry = map[string]any{"type": stage, "status": "Unknown", "message": waits}
		}
		conditions = append(conditions, entry)
	}
	out.Object["status"] = map[string]any{"nodeName": node, "conditions": conditions}
	return out
}

// pod returns the pod with a number. It fetches its weights.
func pod(number int, change ...func(*corev1.Pod)) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: fmt.Sprintf("chat-%d", number), UID: types.UID(fmt.Sprintf("pod-%d", number)), CreationTimestamp: ago(7 * time.Minute),
			Labels: map[string]string{v1beta1.LabelWorkspace: "chat", appsv1.PodIndexLabel: fmt.Sprint(number)},
		},
		Spec: corev1.PodSpec{
			NodeName:       "node-1",
			InitContainers: []corev1.Container{{Name: "weights", Ports: []corev1.ContainerPort{{ContainerPort: 8090}}}},
			Containers:     []corev1.Container{{Name: "chat", Ports: []corev1.ContainerPort{{ContainerPort: 5000}}}},
		},
	}
	out.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "weights", Started: new(false), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	out.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "chat", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}},
	}}
	for _, c := range change {
		c(out)
	}
	return out
}

// running gives the pod its weights and a running engine, ready or not.
func running(ready bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.InitContainerStatuses[0].Started = new(true)
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		if ready {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
	}
}

func crashing(p *corev1.Pod) {
	running(false)(p)
	p.Status.ContainerStatuses[0] = corev1.ContainerStatus{
		Name: "chat", RestartCount: 3,
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "CUDA out of memory"}},
	}
}

// fetchingProgress is an agent's answer in the middle of a fetch.
func fetchingProgress(context.Context) ([]byte, error) {
	return []byte(`{"ready":false,"stage":"fetching","bytes":6442450944,"totalBytes":16106127360,"bytesPerSecond":536870912,"etaSeconds":18,"files":[]}`), nil
}

// revision returns a revision that pins a plan with its inputs.
func revision(t *testing.T, number int64, price float64, in *render.Inputs) *appsv1.ControllerRevision {
	t.Helper()
	pinned := render.Revision{
		Plan: planner.Plan{
			InstanceType: "Standard_A24_1", Nodes: 1, GPUsPerNode: 1, MachineGPUs: 1, Accelerator: "A24", HourlyPrice: price, Engine: "vllm", MaxModelLen: 8192,
			Concurrency: 4, TensorParallel: 1, Artifact: &model.Artifact{Quantization: "bf16"},
		},
		Inputs: in,
	}
	pinned.Template.Spec.Containers = []corev1.Container{{Name: "chat", Image: "registry.example/vllm:v0.31.0"}}
	raw, err := json.Marshal(pinned)
	if err != nil {
		t.Fatal(err)
	}
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: fmt.Sprintf("chat-%d", number), CreationTimestamp: ago(time.Duration(20-number) * time.Hour),
			Labels:          map[string]string{v1beta1.LabelRevisionOwner: "chat"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(workspace(), v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind))},
		},
		Data: runtime.RawExtension{Raw: raw}, Revision: number,
	}
}

// forbidden returns the API server's answer to a user without rights.
func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New(`user "mia" cannot do that`))
}
