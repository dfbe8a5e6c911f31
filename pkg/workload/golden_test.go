// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/workload"
)

var update = flag.Bool("update", false, "write the golden files")

const separator = "---\n"

// preset returns a Workspace with a model of the catalogue.
func preset() *v1beta1.Workspace {
	return &v1beta1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: "chat", Namespace: "team-a", UID: "6a3c9b1e-0000-4000-8000-000000000001"},
		Inference:  &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "some-model"}},
	}
}

func input(ws *v1beta1.Workspace, gpus int) workload.Input {
	plan := planner.Plan{
		Nodes: 1, GPUsPerNode: gpus, DiskGiB: 40, CPUs: 1, MemoryGiB: 2,
		Artifact: &model.Artifact{Repo: "Org/Some-Model-GGUF", Revision: strings.Repeat("0123abcd", 5), Files: []model.File{
			{Path: "some-model-00001-of-00002.gguf", SHA256: strings.Repeat("ab", 32)},
			{Path: "some-model-00002-of-00002.gguf"},
		}},
	}
	if gpus > 0 {
		plan.GPUResource = "nvidia.com/gpu"
	}
	return workload.Input{
		Workspace: ws, Plan: plan, Image: "registry.example/engine:1.2.3", UserID: 65532, Commits: "chat-0123456789-commit",
		Engine: engine.Command{
			Args:       []string{"--model", "/models/some-model-00001-of-00002.gguf", "--port", "5000"},
			HealthPath: "/health",
		},
		Settings: workload.Settings{AgentImage: "registry.example/agent:4.5.6", HubEndpoint: "https://hub.example"},
	}
}

// everyPodField returns a Workspace with every field of inference.pod set, and everything else that affects a pod.
func everyPodField() *v1beta1.Workspace {
	ws := preset()
	ws.Labels = map[string]string{v1beta1.LabelInferenceSet: "chat-set"}
	ws.Resource.PreferredNodes = []string{"node-b", "node-a"}
	ws.Inference.Config = "chat-config"
	ws.Inference.Preset.PresetOptions.ModelAccessSecret = "hub-token"
	ws.Inference.Pod = &v1beta1.PodSpec{
		Tolerations: []corev1.Toleration{
			{Key: "team", Operator: corev1.TolerationOpEqual, Value: "a", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(60))},
			{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
		},
		NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"z1"}}}},
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"z2"}}}},
			}},
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
				Weight:     1,
				Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "fast", Operator: corev1.NodeSelectorOpExists}}},
			}},
		},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}},
		}},
		PriorityClassName:  "important",
		SchedulerName:      "my-scheduler",
		RuntimeClassName:   new("nvidia"),
		ServiceAccountName: "chat",
		Labels: map[string]string{
			"team": "a", v1beta1.LabelWorkspace: "somebody-else", v1beta1.LabelManagedBy: "somebody-else",
		},
		Annotations:                   map[string]string{"cost-centre": "42"},
		CPU:                           new(resource.MustParse("6500m")),
		Memory:                        new(resource.MustParse("48Gi")),
		TerminationGracePeriodSeconds: new(int64(600)),
	}
	return ws
}

// ownTemplate returns a Workspace with a user's pod template. The template has fields that Modelberth never changes.
func ownTemplate() *v1beta1.Workspace {
	ws := preset()
	ws.Annotations = map[string]string{v1beta1.AnnotationEnableLoadBalancer: "True"}
	ws.Resource.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"apps": "chat"}}
	ws.Inference.Preset = nil
	ws.Inference.Template = &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{"app": "mine", v1beta1.LabelWorkspace: "somebody-else"},
			Annotations: map[string]string{"sidecar.istio.io/inject": "false"},
		},
		Spec: corev1.PodSpec{
			HostIPC:      true,
			NodeSelector: map[string]string{"disk": "nvme", v1beta1.LabelWorkspaceUID: "another"},
			Tolerations:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			DNSConfig:    &corev1.PodDNSConfig{Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("1")}}},
			Containers: []corev1.Container{{
				Name: "server", Image: "registry.example/server:1", Command: []string{"/bin/sh", "-c", "exec serve $(PORT)"},
				Ports:     []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}},
				Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}},
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}},
			}},
			Overhead:    corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
			OS:          &corev1.PodOS{Name: corev1.Linux},
			HostAliases: []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"hub"}}},
		},
	}
	return ws
}

// onNodes plans the pods on existing nodes.
func onNodes(in workload.Input, names ...string) workload.Input {
	in.Plan.Nodes, in.Plan.NodeNames = len(names), names
	return in
}

func withKVEvents(in workload.Input) workload.Input {
	in.Engine.KVEventsPort = 5557
	in.Settings.KVEvents = workload.Consumer{Namespace: "router-system", PodLabels: map[string]string{"app": "router"}}
	in.Settings.ImagePullPolicy = "IfNotPresent"
	return in
}

// wholeRepository changes the engine: it loads all weights of a repository instead of the preset's files, and states
// its need for shared memory.
func wholeRepository(in workload.Input) workload.Input {
	in.Plan.Artifact = &model.Artifact{Repo: "Org/Some-Model", Revision: "main"}
	in.Engine = engine.Command{
		Args:            []string{"/models", "--served-model-name", "some-model", "Org/Some-Model"},
		Env:             []engine.EnvVar{{Name: "HF_HUB_OFFLINE", Value: "1"}},
		HealthPath:      "/health",
		SharedMemoryGiB: 10,
		Weights: engine.Selection{
			Weights: []string{"*.safetensors"}, Others: []string{"*.json", "*.txt"}, Except: []string{"consolidated*"},
		},
	}
	in.UserID = 2000
	return in
}

// group plans an engine with the same flags on four machines.
func group(in workload.Input) workload.Input {
	in.Plan.Nodes = 4
	in = wholeRepository(in)
	in.Engine.BusyMetrics = []string{"engine:running", "engine:waiting"}
	worker := in.Engine
	in.Engine.Args = append(slices.Clone(in.Engine.Args), "--node-rank", "0")
	worker.Args = append(slices.Clone(worker.Args), "--node-rank", workload.Rank, "--note", workload.Rank)
	worker.References = []int{len(worker.Args) - 3}
	worker.HealthPath, worker.KVEventsPort, worker.BusyMetrics = "", 0, nil
	in.Worker = &worker
	return withPeers(in)
}

// withPeers holds a group back until the controller finds it isolated.
func withPeers(in workload.Input) workload.Input {
	in.Settings.HoldGroups = true
	in.Peers = workload.PeerSelector(in.Workspace, workload.WorkerTemplate(in).Labels)
	return in
}

// groupOverRPC plans an engine whose workers run another program and read no weights.
func groupOverRPC(in workload.Input) workload.Input {
	in.Plan.Nodes = 2
	in.Engine.BusyMetrics = []string{"engine:running"}
	in.Worker = &engine.Command{
		Entrypoint: []string{"/bin/rpc-server"}, Args: []string{"--port", "50052"}, OpenPort: 50052,
		IgnoresSignals: true, NoWeights: true,
	}
	in.Peers = workload.PeerSelector(in.Workspace, workload.WorkerTemplate(in).Labels)
	return in
}

// live returns the same pod with adapters that change while the engine runs: no volume of a user, and a list that comes
// later.
func live(in workload.Input) workload.Input {
	in.Workspace.Inference.Adapters = slices.DeleteFunc(in.Workspace.Inference.Adapters, func(a v1beta1.AdapterSpec) bool { return a.Source.Volume != nil })
	in.Workspace.Inference.Engine = &v1beta1.EngineSpec{APIKeySecret: "endpoint-key"}
	in.Engine.LoopbackPort, in.APIKeyVariable = 5001, "ENGINE_KEY"
	return in
}

// withAdapters adds an adapter from each kind of source.
func withAdapters(in workload.Input) workload.Input {
	in.Engine.AdapterFiles = engine.Selection{Weights: []string{"adapter_model*.safetensors"}, Others: []string{"adapter_config.json"}}
	in.Workspace.Inference.Adapters = []v1beta1.AdapterSpec{
		{Source: &v1beta1.DataSource{Name: "from.image", Image: "registry.example/adapter:1", ImagePullSecrets: []string{"pull"}}},
		{Source: &v1beta1.DataSource{Name: "from-volume", Volume: &corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "adapters"},
		}}, Path: "support"},
		{Source: &v1beta1.DataSource{Name: "from-hub", Repository: "org/adapter@0123abc"}, Path: "checkpoint-300"},
		{Source: &v1beta1.DataSource{Name: "also", Image: "registry.example/other:1", ImagePullSecrets: []string{"pull"}}},
	}
	return in
}

// cases returns the inputs of the golden files by name.
func cases() map[string]workload.Input {
	return map[string]workload.Input{
		"preset-1-gpu":     input(preset(), 1),
		"preset-4-gpus":    withKVEvents(input(preset(), 4)),
		"preset-cpu":       input(preset(), 0),
		"preset-existing":  onNodes(input(preset(), 1), "node-a", "node-b"),
		"whole-repository": wholeRepository(input(preset(), 8)),
		"every-pod-field":  input(everyPodField(), 1),
		"group":            group(input(everyPodField(), 8)),
		"group-rpc":        groupOverRPC(input(preset(), 1)),
		"weights-supply":   suppliedWeights(input(preset(), 1)),
		"adapters":         withAdapters(wholeRepository(input(preset(), 1))),
		"adapters-live":    live(withAdapters(wholeRepository(input(preset(), 1)))),
		"own-pod-template": {Workspace: ownTemplate()},
		"source-oci": fromSource(input(preset(), 1), v1beta1.WeightsSource{
			OCI: &v1beta1.OCIWeights{Reference: "registry.example/models/some:1", PullSecret: "pull"}, Path: "q4",
		}),
		"source-image": fromSource(wholeRepository(input(preset(), 1)), v1beta1.WeightsSource{
			Image: &v1beta1.ImageWeights{Reference: "registry.example/models/some:1", PullPolicy: corev1.PullIfNotPresent, PullSecret: "pull"},
		}),
		"source-claim": fromSource(withAdapters(wholeRepository(input(preset(), 1))), v1beta1.WeightsSource{
			PersistentVolumeClaim: &v1beta1.ClaimWeights{ClaimName: "models"}, Path: "team/some-model",
		}),
		"source-node": fromSource(groupOverRPC(input(preset(), 1)), v1beta1.WeightsSource{
			HostPath: &v1beta1.HostPathWeights{Path: "/var/lib/models/some"},
		}),
	}
}

// fromSource sets a source of the weights other than the hub.
func fromSource(in workload.Input, from v1beta1.WeightsSource) workload.Input {
	in.Workspace.Inference.Weights = &from
	return in
}

// suppliedWeights sets all of the administrator's settings for weights, with caches for this namespace and another.
func suppliedWeights(in workload.Input) workload.Input {
	in.Settings.Weights = workload.Weights{
		CAConfigMap: "company-ca", HTTPSProxy: "http://proxy.example:3128", NoProxy: ".corp.example",
		Caches: map[string]string{in.Workspace.Namespace: "models", "another": "models-b"}, CacheLimitGiB: 500, CacheVerifyWhole: true,
	}
	return in
}

func podTemplate(in workload.Input) corev1.PodTemplateSpec {
	if in.Workspace.Inference.Template != nil {
		return workload.TemplatePod(in.Workspace, in.Plan.NodeNames)
	}
	return workload.PodTemplate(in)
}

func members(in workload.Input) workload.Members {
	return workload.Members{Nodes: in.Plan.Nodes, Leader: podTemplate(in), Worker: workload.WorkerTemplate(in)}
}

func objects(in workload.Input) []runtime.Object {
	const revision = "chat-0123456789"
	list := []runtime.Object{workload.Service(in), workload.HeadlessService(in.Workspace)}
	if in.Workspace.Inference.Template == nil {
		list = append(list, workload.NetworkPolicy(in))
	} else {
		list = append(list, workload.DisruptionBudget(in.Workspace))
	}
	if in.Worker == nil {
		return append(list, workload.StatefulSet(in.Workspace, 1, podTemplate(in), revision))
	}
	remembered := workload.Group{Number: 3, Failures: 1, Failure: "member chat-worker-1 ended with exit code 1"}
	for _, set := range workload.GroupSets(in.Workspace, members(in), revision, remembered) {
		list = append(list, set)
	}
	return list
}

// render returns the objects as the controller applies them: without the status, because others own it.
func render(t *testing.T, in workload.Input) []byte {
	t.Helper()
	var documents []string
	for _, object := range objects(in) {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		delete(fields, "status")
		document, err := yaml.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(document))
	}
	return []byte(strings.Join(documents, separator))
}

func TestGolden(t *testing.T) {
	for name, in := range cases() {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", name+".yaml")
			got := render(t, in)
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v: run the test with -update to write it", err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", path, diff)
			}
		})
	}
}

// Every field that is written exists in the API, with this exact name and type.
func TestGoldenIsStrictlyValid(t *testing.T) {
	for name := range cases() {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			documents := bytes.Split(data, []byte("\n"+separator))
			kinds := map[string]func() any{
				"Service":             func() any { return &corev1.Service{} },
				"NetworkPolicy":       func() any { return &networkingv1.NetworkPolicy{} },
				"PodDisruptionBudget": func() any { return &policyv1.PodDisruptionBudget{} },
				"StatefulSet":         func() any { return &appsv1.StatefulSet{} },
			}
			for i := range documents {
				var kind metav1.TypeMeta
				if err := yaml.Unmarshal(documents[i], &kind); err != nil || kinds[kind.Kind] == nil {
					t.Fatalf("document %d is of kind %q: %v", i, kind.Kind, err)
				}
				if err := yaml.UnmarshalStrict(documents[i], kinds[kind.Kind]()); err != nil {
					t.Errorf("document %d: %v", i, err)
				}
			}
		})
	}
}
