// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/workload"
	"github.com/modelberth/modelberth/presets"
)

// shelf is a catalogue, as the command line and as the controller read it.
type shelf struct {
	files   fs.FS
	catalog *catalog.Catalog
	models  []string
	// measured are calibration files; nil means none.
	measured *calibrations
}

// catalogues are the shipped one, and others with other prices and without some machine types or models.
func catalogues(t *testing.T) []shelf {
	t.Helper()
	out := []shelf{shelve(t, presets.FS())}
	for seed := range uint64(5) {
		random, files := rand.New(rand.NewPCG(seed, 1)), fstest.MapFS{}
		err := fs.WalkDir(presets.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			isOptional := strings.HasPrefix(path, "skus/") && path != "skus/azure.yaml" || strings.HasPrefix(path, "models/")
			if isOptional && random.IntN(4) == 0 {
				return nil
			}
			content, err := fs.ReadFile(presets.FS(), path)
			if strings.HasPrefix(path, "skus/") {
				content = repriced(random, content)
			}
			files[path] = &fstest.MapFile{Data: content}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, shelve(t, files))
	}
	for i := range out {
		if i%2 == 0 {
			out[i].measured = calibrate(t, rand.New(rand.NewPCG(uint64(i), 2)), out[i])
		}
	}
	return out
}

// repriced multiplies all prices of each machine type by a factor between 0.5 and 1.5.
func repriced(random *rand.Rand, content []byte) []byte {
	factor := 1.0
	price := regexp.MustCompile(`: (\d+\.?\d*)([,}])`)
	lines := strings.Split(string(content), "\n")
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "- name:"):
			factor = 0.5 + random.Float64()
		case strings.Contains(strings.ToLower(line), "prices: {"):
			lines[i] = price.ReplaceAllStringFunc(line, func(match string) string {
				parts := price.FindStringSubmatch(match)
				value, _ := strconv.ParseFloat(parts[1], 64)
				return ": " + strconv.FormatFloat(value*factor, 'f', 4, 64) + parts[2]
			})
		}
	}
	return []byte(strings.Join(lines, "\n"))
}

func shelve(t *testing.T, files fs.FS) shelf {
	t.Helper()
	known, err := catalog.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	out := shelf{files: files, catalog: known}
	for _, m := range known.Models() {
		out.models = append(out.models, m.Name)
	}
	return out
}

// testCase is one Workspace with everything that its plan depends on.
type testCase struct {
	shelf     shelf
	workspace *v1beta1.Workspace
	config    *corev1.ConfigMap
	nodes     []corev1.Node
	nodesFile string
	planner   planner.Settings
	render    render.Settings
}

// draw makes a case up.
func draw(random *rand.Rand, shelves []shelf) *testCase {
	c := &testCase{shelf: shelves[random.IntN(len(shelves))]}
	c.drawSettings(random)
	c.drawWorkspace(random)
	c.drawInference(random)
	c.drawResource(random)
	// Without nodes the command line says that it must be given some.
	if c.workspace.Resource.EffectiveNodeSource() == v1beta1.NodeSourceExisting || random.IntN(4) == 0 {
		c.drawNodes(random)
	}
	return c
}

func (c *testCase) drawSettings(random *rand.Rand) {
	chance := func(of int) bool { return random.IntN(of) == 0 }
	c.planner.Engines, c.planner.NoRDMA = render.Engines(), true
	c.planner.LocalDisk = chance(4)
	if chance(3) {
		c.planner.Clouds = []string{"azure"}
	}
	if chance(4) {
		c.planner.OSDiskGiB = 128 << random.IntN(4)
	}
	if chance(4) {
		c.planner.Provisioner = "karpenter"
	}
	c.render.Workload.AgentImage, c.render.Workload.HubEndpoint = "registry.example/agent:1", "https://hub.example"
	if chance(2) {
		c.planner.NoRDMA, c.render.Workload.RDMA = false, workload.RDMA{Resource: "rdma/ib", Count: 1 + random.IntN(2)}
	}
	if chance(3) {
		c.render.EngineRegistry = "registry.example/mirror"
	}
	if chance(4) {
		c.render.EngineImages = map[string]string{"vllm": "registry.example/vllm:1"}
	}
	c.render.AllowRemoteCode = chance(2)
	if chance(4) {
		// The only error is that the text is wrong.
		_ = c.render.Workload.KVEvents.Set("router-system/app=router")
	}
}

func (c *testCase) drawWorkspace(random *rand.Rand) {
	c.workspace = &v1beta1.Workspace{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.GroupVersion().String(), Kind: v1beta1.WorkspaceKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat", UID: "uid-1", Annotations: map[string]string{}},
	}
	for _, key := range render.ShapingAnnotations() {
		if key != v1beta1.AnnotationNodeClassName && random.IntN(12) == 0 {
			c.workspace.Annotations[key] = "true"
		}
	}
}

func (c *testCase) drawInference(random *rand.Rand) {
	chance := func(of int) bool { return random.IntN(of) == 0 }
	if chance(12) {
		c.workspace.Inference = &v1beta1.InferenceSpec{Template: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "server", Image: "registry.example/server:1", Resources: corev1.ResourceRequirements{
					Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(fmt.Sprint(1 + random.IntN(4)))},
				},
			}},
		}}}
		return
	}
	in := &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: c.shelf.models[random.IntN(len(c.shelf.models))]}}
	c.workspace.Inference = in
	if m, err := c.shelf.catalog.ResolveModel(in.Preset.Name); err == nil && m.Gated {
		in.Preset.PresetOptions.ModelAccessSecret = "token"
	}
	if chance(2) {
		in.Objectives = c.drawObjectives(random)
	}
	if chance(3) {
		in.Engine = &v1beta1.EngineSpec{Name: []string{"", "vllm", "llamacpp"}[random.IntN(3)]}
		if chance(2) {
			in.Engine.Args = map[string]v1beta1.EngineArg{"max-num-seqs": v1beta1.EngineArg(fmt.Sprint(1 << random.IntN(9)))}
		}
		if chance(3) {
			in.Engine.AllowedQuantizations = []string{"fp8", "awq"}
		}
		if chance(3) {
			in.Engine.Env = []v1beta1.EngineEnv{{Name: "SOME_VARIABLE", Value: "some value"}}
		}
		if chance(4) {
			in.Engine.APIKeySecret = "key"
		}
	}
	if chance(5) {
		in.Config = "config"
		c.config = &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "config"},
			Data:       map[string]string{v1beta1.InferenceConfigKey: fmt.Sprintf("vllm:\n  max-model-len: %d\n  swap-space: 4\n", 1024<<random.IntN(6))},
		}
	}
	if chance(8) {
		in.Adapters = []v1beta1.AdapterSpec{{Source: &v1beta1.DataSource{Name: "style", Image: "registry.example/adapter:1"}}}
	}
	if chance(8) {
		in.Weights = &v1beta1.WeightsSource{PersistentVolumeClaim: &v1beta1.ClaimWeights{ClaimName: "weights"}}
	}
}

func (c *testCase) drawObjectives(random *rand.Rand) *v1beta1.ObjectivesSpec {
	out := &v1beta1.ObjectivesSpec{}
	number := func(into **int32, least, doublings int) {
		if random.IntN(2) == 0 {
			*into = new(int32(least << random.IntN(doublings)))
		}
	}
	number(&out.MaxModelLen, 2048, 6)
	number(&out.Concurrency, 1, 8)
	number(&out.InputTokens, 128, 6)
	number(&out.OutputTokens, 64, 5)
	if random.IntN(4) == 0 {
		out.RequestsPerSecond = strconv.FormatFloat(float64(1+random.IntN(400))/10, 'f', -1, 64)
	}
	if random.IntN(4) == 0 {
		out.TimePerOutputToken = &metav1.Duration{Duration: time.Duration(20+random.IntN(200)) * time.Millisecond}
	}
	if random.IntN(2) == 0 {
		aims := []v1beta1.OptimizeFor{v1beta1.OptimizeForCost, v1beta1.OptimizeForLatency, v1beta1.OptimizeForThroughput}
		out.OptimizeFor = aims[random.IntN(len(aims))]
	}
	return out
}

func (c *testCase) drawResource(random *rand.Rand) {
	chance := func(of int) bool { return random.IntN(of) == 0 }
	spec := &c.workspace.Resource
	skus := c.shelf.catalog.SKUs()
	if chance(4) {
		spec.InstanceType = skus[random.IntN(len(skus))].Name
	}
	if chance(4) {
		spec.Count = new(1 + random.IntN(3))
	}
	if chance(4) {
		spec.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a", "kubernetes.io/os": "linux"}}
	}
	if chance(2) {
		spec.Placement = &v1beta1.PlacementSpec{}
		if chance(3) {
			spec.Placement.MaxHourlyPrice = fmt.Sprint(1 << random.IntN(7))
		}
		if chance(3) {
			spec.Placement.CapacityTypes = []v1beta1.CapacityType{v1beta1.CapacitySpot, v1beta1.CapacityOnDemand}
		}
		if chance(4) {
			spec.Placement.Accelerators = []string{"A100-80", "H100-80"}
		}
		if chance(4) {
			spec.Placement.NodeSource = v1beta1.NodeSourceProvisioned
		}
	}
}

// drawNodes has nodes exist that the Workspace may use.
func (c *testCase) drawNodes(random *rand.Rand) {
	for i := range 1 + random.IntN(3) {
		node := corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
		node.Name = fmt.Sprint("gpu-", i)
		node.Labels = map[string]string{
			corev1.LabelInstanceTypeStable: "Standard_ND96isr_H100_v5", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
			"nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "81559", "team": "a", "kubernetes.io/os": "linux",
		}
		node.Status.Allocatable = corev1.ResourceList{
			"nvidia.com/gpu": resource.MustParse("8"), corev1.ResourceCPU: resource.MustParse("96"),
			corev1.ResourceMemory: resource.MustParse("1900Gi"), corev1.ResourceEphemeralStorage: resource.MustParse("2Ti"),
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		c.nodes = append(c.nodes, node)
	}
}

// objects are what the cluster has beside the Workspace.
func (c *testCase) objects() []client.Object {
	out := []client.Object{
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "token"},
			Data:       map[string][]byte{v1beta1.HubTokenKey: []byte("some-token")},
		},
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "key"},
			Data:       map[string][]byte{v1beta1.APIKeyKey: []byte("0123456789abcdef0123456789abcdef")},
		},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "weights"}},
	}
	if c.config != nil {
		out = append(out, c.config.DeepCopy())
	}
	for i := range c.nodes {
		out = append(out, c.nodes[i].DeepCopy())
	}
	return out
}

// manifest is what the command line reads.
func (c *testCase) manifest(t *testing.T) string {
	t.Helper()
	objects := []client.Object{c.workspace}
	if c.config != nil {
		objects = append(objects, c.config)
	}
	var out strings.Builder
	for _, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n" + string(text))
	}
	if len(c.nodes) > 0 && c.nodesFile == "" {
		text, err := yaml.Marshal(map[string]any{"items": c.nodes})
		if err != nil {
			t.Fatal(err)
		}
		c.nodesFile = filepath.Join(t.TempDir(), "nodes.yaml")
		if err := os.WriteFile(c.nodesFile, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// flags are the settings that plans depend on.
func (c *testCase) flags() []string {
	out := []string{"--hub-endpoint", c.render.Workload.HubEndpoint, "--offline"}
	for _, cloud := range c.planner.Clouds {
		out = append(out, "--cloud", cloud)
	}
	if c.planner.OSDiskGiB > 0 {
		out = append(out, "--os-disk-gib", fmt.Sprint(c.planner.OSDiskGiB))
	}
	if c.planner.LocalDisk {
		out = append(out, "--local-disk-holds-pods")
	}
	if c.planner.Provisioner != "" {
		out = append(out, "--provisioner", c.planner.Provisioner)
	}
	if rdma := c.render.Workload.RDMA; rdma.Resource != "" {
		out = append(out, fmt.Sprintf("--rdma=%s=%d", rdma.Resource, rdma.Count))
	}
	if c.nodesFile != "" {
		out = append(out, "--nodes", c.nodesFile)
	}
	return append(out, c.shelf.measured.flags()...)
}

// renderFlags are the settings that only pods depend on.
func (c *testCase) renderFlags() []string {
	out := []string{"--agent-image", c.render.Workload.AgentImage}
	if c.render.EngineRegistry != "" {
		out = append(out, "--engine-registry", c.render.EngineRegistry)
	}
	for name, image := range c.render.EngineImages {
		out = append(out, "--engine-image", name+"="+image)
	}
	if c.render.AllowRemoteCode {
		out = append(out, "--allow-remote-code")
	}
	if c.render.Workload.KVEvents.IsNamed() {
		out = append(out, "--kv-events-consumer", "router-system/app=router")
	}
	return out
}
