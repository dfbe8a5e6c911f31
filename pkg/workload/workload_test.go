// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	psaapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/workload"
)

// Even if maps are built in a different order, the result is the same byte for byte.
func TestSameInputSameBytes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name := range cases() {
		t.Run(name, func(t *testing.T) {
			first := render(t, cases()[name])
			for range 20 {
				in := cases()[name]
				shuffle(random, in.Workspace)
				if diff := cmp.Diff(string(first), string(render(t, in))); diff != "" {
					t.Fatalf("another order of maps changes the result: -first +shuffled:\n%s", diff)
				}
			}
		})
	}
}

func shuffle(random *rand.Rand, ws *v1beta1.Workspace) {
	rebuild := func(m map[string]string) map[string]string {
		if m == nil {
			return nil
		}
		keys := slices.Collect(maps.Keys(m))
		random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		again := map[string]string{}
		for _, key := range keys {
			again[key] = m[key]
		}
		return again
	}
	ws.Labels, ws.Annotations = rebuild(ws.Labels), rebuild(ws.Annotations)
	if selector := ws.Resource.LabelSelector; selector != nil {
		selector.MatchLabels = rebuild(selector.MatchLabels)
	}
	if pod := ws.Inference.Pod; pod != nil {
		pod.Labels, pod.Annotations = rebuild(pod.Labels), rebuild(pod.Annotations)
	}
	if template := ws.Inference.Template; template != nil {
		template.Labels, template.Spec.NodeSelector = rebuild(template.Labels), rebuild(template.Spec.NodeSelector)
	}
}

// Builders do not change their input, and their results share no memory with it.
func TestInputIsLeftAlone(t *testing.T) {
	for name, in := range cases() {
		t.Run(name, func(t *testing.T) {
			before := in.Workspace.DeepCopy()
			first := render(t, in)
			for _, template := range []corev1.PodTemplateSpec{podTemplate(in), workload.StatefulSet(in.Workspace, 1, podTemplate(in), "r").Spec.Template} {
				template.Labels["x"] = "y"
				if template.Spec.NodeSelector != nil {
					template.Spec.NodeSelector["x"] = "y"
				}
				template.Spec.Tolerations[0].Key = "changed"
				template.Spec.Containers[0].Image = "changed"
				if affinity := template.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil && affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
					term := &affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
					for _, each := range slices.Concat(term.MatchExpressions, term.MatchFields) {
						each.Values[0] = "changed"
					}
				}
			}
			workload.Service(in).Spec.Selector["x"] = "y"
			if diff := cmp.Diff(before, in.Workspace); diff != "" {
				t.Errorf("the Workspace was changed: -before +after:\n%s", diff)
			}
			if diff := cmp.Diff(string(first), string(render(t, in))); diff != "" {
				t.Errorf("a result shares memory with another: -first +second:\n%s", diff)
			}
		})
	}
}

// Selectors, names and the name of the governing Service are immutable, so they may depend only on the name of the
// Workspace.
func TestImmutableFieldsDependOnTheNameOnly(t *testing.T) {
	type immutable struct {
		Name, ServiceName, Management string
		Selector                      metav1.LabelSelector
		Claims                        int
		Service, Headless             string
	}
	of := func(in workload.Input) immutable {
		set := workload.StatefulSet(in.Workspace, 3, podTemplate(in), "r")
		return immutable{
			Name: set.Name, ServiceName: set.Spec.ServiceName, Management: string(set.Spec.PodManagementPolicy),
			Selector: *set.Spec.Selector, Claims: len(set.Spec.VolumeClaimTemplates),
			Service: workload.Service(in).Name, Headless: workload.HeadlessService(in.Workspace).Name,
		}
	}
	want := immutable{
		Name: "chat", ServiceName: "chat-headless", Management: "Parallel",
		Selector: metav1.LabelSelector{MatchLabels: map[string]string{"kaito.sh/workspace": "chat"}},
		Service:  "chat", Headless: "chat-headless",
	}
	for name, in := range cases() {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(want, of(in)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A pod that does not match the selectors of its StatefulSet and Service would never be used.
func TestPodsMatchSelectors(t *testing.T) {
	for name, in := range cases() {
		t.Run(name, func(t *testing.T) {
			template := podTemplate(in)
			set := workload.StatefulSet(in.Workspace, 1, template, "r")
			for key, value := range set.Spec.Selector.MatchLabels {
				if got := set.Spec.Template.Labels[key]; got != value {
					t.Errorf("label %s of the pod is %q, and the StatefulSet selects %q", key, got, value)
				}
			}
			selector := maps.Clone(workload.Service(in).Spec.Selector)
			if index := selector["apps.kubernetes.io/pod-index"]; index != "0" {
				t.Errorf("the Service selects pod index %q, want 0", index)
			}
			delete(selector, "apps.kubernetes.io/pod-index")
			if diff := cmp.Diff(set.Spec.Selector.MatchLabels, selector); diff != "" {
				t.Errorf("the Service selects other pods than the StatefulSet: -set +service:\n%s", diff)
			}
		})
	}
}

// A user's template stays unchanged, apart from labels and placement.
func TestTemplateIsKept(t *testing.T) {
	ws := ownTemplate()
	got := workload.TemplatePod(ws, nil)
	want := *ws.Inference.Template.DeepCopy()
	want.Labels = map[string]string{"app": "mine", v1beta1.LabelWorkspace: "chat", v1beta1.LabelManagedBy: "modelberth"}
	want.Spec.NodeSelector = map[string]string{"disk": "nvme", v1beta1.LabelWorkspaceUID: string(ws.UID)}
	want.Spec.Tolerations = got.Spec.Tolerations
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("TemplatePod: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(ws.Inference.Template.Spec.Tolerations[0], got.Spec.Tolerations[0]); diff != "" {
		t.Errorf("the user's toleration is gone: -want +got:\n%s", diff)
	}
}

// The alternatives of the user's affinity are ORed, and each can name only one node. So there is one alternative for
// each combination with a node.
func TestNodesBindEveryAlternative(t *testing.T) {
	template := podTemplate(onNodes(input(everyPodField(), 1), "node-a", "node-b"))
	var got []string
	for _, term := range template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(term.MatchExpressions) != 1 || len(term.MatchFields) != 1 {
			t.Fatalf("alternative %+v, want the user's and a node", term)
		}
		zone, node := term.MatchExpressions[0], term.MatchFields[0]
		got = append(got, fmt.Sprint(zone.Key, zone.Values, node.Key, node.Operator, node.Values))
	}
	const zone = corev1.LabelTopologyZone
	want := []string{
		zone + "[z1]metadata.nameIn[node-a]", zone + "[z1]metadata.nameIn[node-b]",
		zone + "[z2]metadata.nameIn[node-a]", zone + "[z2]metadata.nameIn[node-b]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("alternatives: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string(nil), template.Spec.NodeSelector); diff != "" {
		t.Errorf("node selector: -want +got:\n%s", diff)
	}
	kept := map[string]string{
		"cost-centre": "42", "karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
	}
	if diff := cmp.Diff(kept, template.Annotations); diff != "" {
		t.Errorf("annotations: -want +got:\n%s", diff)
	}
}

// Placement has the pods' own requirements and our tolerations, but selects no machines.
func TestPlacement(t *testing.T) {
	own, every := ownTemplate(), everyPodField()
	for _, tc := range []struct {
		reason string
		ws     *v1beta1.Workspace
		want   corev1.PodSpec
	}{
		{"a template's", own, corev1.PodSpec{
			NodeSelector: own.Inference.Template.Spec.NodeSelector,
			Tolerations:  workload.TemplatePod(own, nil).Spec.Tolerations,
		}},
		{"a preset's", every, corev1.PodSpec{
			Affinity:    &corev1.Affinity{NodeAffinity: every.Inference.Pod.NodeAffinity},
			Tolerations: podTemplate(input(every, 1)).Spec.Tolerations,
		}},
		{"nothing but our tolerations", preset(), corev1.PodSpec{Tolerations: podTemplate(input(preset(), 1)).Spec.Tolerations}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got := workload.Placement(tc.ws)
			placed := corev1.PodSpec{NodeSelector: got.NodeSelector, Affinity: got.Affinity, Tolerations: got.Tolerations}
			if diff := cmp.Diff(tc.want, placed); diff != "" {
				t.Errorf("placement: -want +got:\n%s", diff)
			}
		})
	}
}

// The user's labels, annotations and flags cannot replace ours.
func TestUsersCannotReplaceOurs(t *testing.T) {
	in := input(everyPodField(), 1)
	template := podTemplate(in)
	want := map[string]string{
		"team": "a", v1beta1.LabelWorkspace: "chat", v1beta1.LabelManagedBy: "modelberth", v1beta1.LabelInferenceSet: "chat-set",
	}
	if diff := cmp.Diff(want, template.Labels); diff != "" {
		t.Errorf("labels: -want +got:\n%s", diff)
	}
	if got := template.Spec.NodeSelector[v1beta1.LabelWorkspaceUID]; got != string(in.Workspace.UID) {
		t.Errorf("the pod selects machines of %q, want %q", got, in.Workspace.UID)
	}
}

func TestPresetPodsAreRestricted(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := psaapi.LevelVersion{Level: psaapi.LevelRestricted, Version: psaapi.LatestVersion()}
	for name, in := range cases() {
		if in.Workspace.Inference.Template != nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			templates := []corev1.PodTemplateSpec{podTemplate(in)}
			if in.Worker != nil {
				templates = append(templates, workload.WorkerTemplate(in))
			}
			for _, template := range templates {
				for _, result := range evaluator.EvaluatePod(level, &template.ObjectMeta, &template.Spec) {
					// A hostPath needs the administrator's permission, and a namespace that allows it.
					isNode := name == "source-node" && result.ForbiddenDetail == `volume "models" uses restricted volume type "hostPath"`
					if !result.Allowed && !isNode {
						t.Errorf("%s: %s", result.ForbiddenReason, result.ForbiddenDetail)
					}
				}
				for _, container := range slices.Concat(template.Spec.InitContainers, template.Spec.Containers) {
					if root := container.SecurityContext.ReadOnlyRootFilesystem; root == nil || !*root {
						t.Errorf("container %q may write to its root file system", container.Name)
					}
				}
			}
		})
	}
}

// A client of a worker's RPC server controls its process, so the worker's pod must have no secrets.
func TestWorkerWithoutWeightsGetsNoSecrets(t *testing.T) {
	in := suppliedWeights(groupOverRPC(input(preset(), 1)))
	in.Workspace.Inference.Preset.PresetOptions.ModelAccessSecret = "hub-token"
	in = withAdapters(in)
	spec := workload.WorkerTemplate(in).Spec
	for _, variable := range spec.InitContainers[0].Env {
		if variable.ValueFrom != nil && variable.ValueFrom.SecretKeyRef != nil {
			t.Errorf("variable %s comes from a Secret", variable.Name)
		}
	}
	for _, volume := range spec.Volumes {
		if volume.Secret != nil || volume.PersistentVolumeClaim != nil {
			t.Errorf("volume %s: %+v", volume.Name, volume.VolumeSource)
		}
	}
}

func TestService(t *testing.T) {
	router := workload.Consumer{Namespace: "router-system", PodLabels: map[string]string{"app": "router"}}
	type port struct {
		Name         string
		Port, Target int32
	}
	for _, tc := range []struct {
		reason string
		enable *string
		events int
		reader workload.Consumer
		kind   corev1.ServiceType
		want   []port
	}{
		{reason: "inside the cluster", kind: corev1.ServiceTypeClusterIP, want: []port{{"http", 80, 5000}}},
		{reason: "events for a named consumer", events: 5557, reader: router, kind: corev1.ServiceTypeClusterIP, want: []port{{"http", 80, 5000}, {"kv-events", 5557, 5557}}},
		{reason: "an engine of an earlier version, which publishes events to nobody", events: 5557, kind: corev1.ServiceTypeClusterIP, want: []port{{"http", 80, 5000}}},
		{reason: "an engine without events", reader: router, kind: corev1.ServiceTypeClusterIP, want: []port{{"http", 80, 5000}}},
		{reason: "a load balancer shows port 80 and nothing else", enable: new("True"), events: 5557, reader: router, kind: corev1.ServiceTypeLoadBalancer, want: []port{{"http", 80, 5000}}},
		{reason: "true in lower case asks for nothing", enable: new("true"), kind: corev1.ServiceTypeClusterIP, want: []port{{"http", 80, 5000}}},
		{reason: "a space asks for nothing", enable: new("True "), kind: corev1.ServiceTypeClusterIP, want: []port{{"http", 80, 5000}}},
		{reason: "an empty value asks for nothing", enable: new(""), kind: corev1.ServiceTypeClusterIP, want: []port{{"http", 80, 5000}}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := input(preset(), 1)
			in.Engine.KVEventsPort, in.Settings.KVEvents = tc.events, tc.reader
			if tc.enable != nil {
				in.Workspace.Annotations = map[string]string{"kaito.sh/enablelb": *tc.enable}
			}
			got := workload.Service(in)
			var ports []port
			for _, p := range got.Spec.Ports {
				ports = append(ports, port{p.Name, p.Port, p.TargetPort.IntVal})
			}
			if diff := cmp.Diff(tc.want, ports); diff != "" {
				t.Errorf("ports: -want +got:\n%s", diff)
			}
			if got.Spec.Type != tc.kind {
				t.Errorf("type %s, want %s", got.Spec.Type, tc.kind)
			}
			if got.Spec.PublishNotReadyAddresses {
				t.Error("clients would be sent to an engine that is not ready")
			}
		})
	}
}

//go:fix inline
func TestServiceOfATemplate(t *testing.T) {
	ports := func(list ...corev1.ContainerPort) []corev1.Container {
		return []corev1.Container{{Name: "a", Ports: list}, {Name: "b"}}
	}
	for _, tc := range []struct {
		reason     string
		containers []corev1.Container
		want       int32
	}{
		{"no declared port means 5000", ports(), 5000},
		{"5000 among others", ports(corev1.ContainerPort{Name: "http", ContainerPort: 80}, corev1.ContainerPort{ContainerPort: 5000}), 5000},
		{"the port named http", ports(corev1.ContainerPort{Name: "metrics", ContainerPort: 9090}, corev1.ContainerPort{Name: "http", ContainerPort: 8080}), 8080},
		{"the only port", ports(corev1.ContainerPort{Name: "web", ContainerPort: 8000}), 8000},
		{"several, none of which is known", ports(corev1.ContainerPort{ContainerPort: 1}, corev1.ContainerPort{ContainerPort: 2}), 5000},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			ws := ownTemplate()
			ws.Inference.Template.Spec.Containers = tc.containers
			if got := workload.Service(workload.Input{Workspace: ws}).Spec.Ports[0].TargetPort.IntVal; got != tc.want {
				t.Errorf("Service targets port %d, want %d", got, tc.want)
			}
			if got := workload.HeadlessService(ws).Spec.Ports[0].Port; got != tc.want {
				t.Errorf("headless Service has port %d, want %d", got, tc.want)
			}
		})
	}
}

// The kubelet reads $(NAME) in arguments and variables as a reference, and $$ as an escaped dollar.
func TestDollarsStayDollars(t *testing.T) {
	in := input(preset(), 0)
	in.Engine.Args = []string{"--chat-template", "$(HOME) $$ $x"}
	in.Engine.Env = []engine.EnvVar{{Name: "HOME", Value: "/data"}, {Name: "A", Value: "$(HOME)"}}
	in.Plan.Artifact.Files[0].Path = "a$(HOME).gguf"
	container := podTemplate(in).Spec.Containers[0]
	if diff := cmp.Diff([]string{"--chat-template", "$$(HOME) $$$$ $$x"}, container.Args); diff != "" {
		t.Errorf("args: -want +got:\n%s", diff)
	}
	want := []corev1.EnvVar{{Name: "HOME", Value: "/data"}, {Name: "A", Value: "$$(HOME)"}}
	if diff := cmp.Diff(want, container.Env); diff != "" {
		t.Errorf("env: -want +got:\n%s", diff)
	}
	if args := podTemplate(in).Spec.InitContainers[0].Args; !slices.Contains(args, "a$$(HOME).gguf") {
		t.Errorf("the agent's arguments name another file: %q", args)
	}
}

func TestGroupNameProblem(t *testing.T) {
	if got := workload.GroupNameProblem(strings.Repeat("a", 45)); got != "" {
		t.Errorf("45 characters: %s", got)
	}
	name := strings.Repeat("a", 46)
	want := `metadata.name "` + name + `" has 46 characters, but at most 45 are allowed if several machines serve, ` +
		`because the StatefulSet ` + name + `-worker labels its pods with its name and 11 more characters: create the Workspace again under a shorter name, ` +
		`or allow a machine type that holds the model alone`
	if diff := cmp.Diff(want, workload.GroupNameProblem(name)); diff != "" {
		t.Errorf("46 characters: -want +got:\n%s", diff)
	}
}

// Modelberth's own references stay references for the kubelet. The same text from a user is escaped.
func TestOnlyTheRankIsAReference(t *testing.T) {
	in := group(input(preset(), 8))
	args := workload.WorkerTemplate(in).Spec.Containers[0].Args
	want := []string{"--node-rank", "$(POD_INDEX)", "--note", "$$(POD_INDEX)"}
	if diff := cmp.Diff(want, args[len(args)-4:]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	in.Worker.Env = []engine.EnvVar{{Name: workload.PodIndex, Value: "7"}}
	for _, variable := range workload.WorkerTemplate(in).Spec.Containers[0].Env {
		if variable.Name == workload.PodIndex && variable.ValueFrom == nil {
			t.Errorf("a user's variable gives the rank: %+v", variable)
		}
	}
}

// The two StatefulSets must not select each other's pods, and clients must never reach a worker.
func TestSetsOfAGroupAreApart(t *testing.T) {
	in := group(input(preset(), 8))
	sets := workload.GroupSets(in.Workspace, members(in), "r", workload.Group{Number: 1})
	leader, worker := sets[0], sets[1]
	if *leader.Spec.Replicas != 1 || *worker.Spec.Replicas != 3 || worker.Spec.Ordinals.Start != 1 {
		t.Errorf("replicas %d and %d from %d, want 1 and 3 from 1", *leader.Spec.Replicas, *worker.Spec.Replicas, worker.Spec.Ordinals.Start)
	}
	if _, claimed := leader.Spec.Template.Labels[v1beta1.LabelGroupRole]; claimed {
		t.Error("the leader's pod carries the workers' label, by which their set claims it")
	}
	if leader.Spec.ServiceName != worker.Spec.ServiceName {
		t.Errorf("pods are named in the Services %s and %s, want one", leader.Spec.ServiceName, worker.Spec.ServiceName)
	}
	if diff := cmp.Diff([]string{"chat-worker-1.chat-headless", "chat-worker-2.chat-headless"}, workload.WorkerAddresses(in.Workspace, 3)); diff != "" {
		t.Errorf("addresses: -want +got:\n%s", diff)
	}
}

func TestGroupIsRemembered(t *testing.T) {
	in := group(input(preset(), 8))
	for _, want := range []workload.Group{{Number: 1}, {Number: 7, NotBefore: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Failures: 3, Failure: "member chat-0 ended"}} {
		sets := workload.GroupSets(in.Workspace, members(in), "r", want)
		if diff := cmp.Diff(want, workload.GroupOf(sets[0])); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	if diff := cmp.Diff(workload.Group{Number: 1}, workload.GroupOf(nil)); diff != "" {
		t.Errorf("without a set: -want +got:\n%s", diff)
	}
}

func TestNameProblem(t *testing.T) {
	for _, tc := range []struct{ reason, name, want string }{
		{"a plain name", "chat-2", ""},
		{"the longest name", strings.Repeat("a", 52), ""},
		{"no name", "", "the Workspace has no name: give it one in metadata.name"},
		{
			"too long for the pods' label", strings.Repeat("a", 53),
			`metadata.name "` + strings.Repeat("a", 53) + `" has 53 characters, but at most 52 are allowed, because the StatefulSet labels its pods with its name and 11 more characters: create the Workspace again under a shorter name`,
		},
		{
			"a digit in front, which a Service cannot have", "7b-chat",
			`metadata.name "7b-chat" is not a valid name for a Service: create the Workspace again, under a name of lower-case letters, digits and dashes that begins with a letter and ends with a letter or digit`,
		},
		{
			"a dot, which a Service cannot have", "chat.v2",
			`metadata.name "chat.v2" is not a valid name for a Service: create the Workspace again, under a name of lower-case letters, digits and dashes that begins with a letter and ends with a letter or digit`,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, workload.NameProblem(tc.name)); diff != "" {
				t.Errorf("NameProblem(%q): -want +got:\n%s", tc.name, diff)
			}
		})
	}
}

func TestDrain(t *testing.T) {
	for _, tc := range []struct {
		reason string
		pod    *v1beta1.PodSpec
		want   time.Duration
	}{
		{"the default period, less what the engine needs to end", nil, 110 * time.Second},
		{"a pod that says nothing of it", &v1beta1.PodSpec{}, 110 * time.Second},
		{"the user's period", &v1beta1.PodSpec{TerminationGracePeriodSeconds: new(int64(600))}, 590 * time.Second},
		{"a period that is too short to wait", &v1beta1.PodSpec{TerminationGracePeriodSeconds: new(int64(5))}, 0},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			ws := preset()
			ws.Inference.Pod = tc.pod
			if got := workload.Drain(ws); got != tc.want {
				t.Errorf("Drain = %s, want %s", got, tc.want)
			}
		})
	}
	if got := workload.Drain(&v1beta1.Workspace{}); got != 110*time.Second {
		t.Errorf("Drain of a Workspace without inference = %s", got)
	}
}

// TestForgedMarksDoNotReachPods: a Workspace may have labels and annotations that only the controller may set, if it is
// older than the rule against them.
func TestForgedMarksDoNotReachPods(t *testing.T) {
	marks := map[string]string{
		v1beta1.LabelWorkspaceUID: "uid-0", v1beta1.AnnotationMachine: "{}", v1beta1.AnnotationRevision: "a", v1beta1.LabelWorkspace: "other", "team": "a",
	}
	ws := &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat", UID: "uid-1"}}
	ws.Inference = &v1beta1.InferenceSpec{Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
		Labels: maps.Clone(marks), Annotations: maps.Clone(marks),
	}}}
	got := workload.TemplatePod(ws, nil)
	want := map[string]string{v1beta1.LabelWorkspace: "chat", v1beta1.LabelManagedBy: v1beta1.ManagedBy, "team": "a"}
	if diff := cmp.Diff(want, got.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{v1beta1.LabelWorkspace: "other", "team": "a"}, got.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

// TestContainersHaveNamesOfTheirOwn: the engine's container has the name of the Workspace, as with KAITO.
func TestContainersHaveNamesOfTheirOwn(t *testing.T) {
	for _, name := range []string{"chat", "weights", "commit", "weights-agent", "commit-agent"} {
		in := wholeRepository(input(preset(), 1))
		in.Workspace.Name = name
		pod := podTemplate(in).Spec
		seen := map[string]bool{}
		for _, container := range append(pod.InitContainers, pod.Containers...) {
			if seen[container.Name] {
				t.Errorf("Workspace %q: two containers have the name %q", name, container.Name)
			}
			seen[container.Name] = true
		}
		if len(seen) != 3 || pod.Containers[0].Name != name || !seen[workload.WeightsContainer(name)] || !seen[workload.CommitContainer(name)] {
			t.Errorf("Workspace %q: the containers are %v", name, seen)
		}
	}
}
