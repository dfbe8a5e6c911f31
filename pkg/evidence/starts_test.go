// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/evidence"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/presets"
)

// started is a Workspace with its revision. Its engine reported the tokens of its KV cache.
type started struct {
	ws     *v1beta1.Workspace
	pinned *render.Revision
}

// startedWith returns a start with a plan.
func startedWith(name, preset string, plan planner.Plan, tokens string) *started {
	ws := &v1beta1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID(name)},
		Inference:  &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: preset}},
	}
	ws.Status.Engine = &v1beta1.EngineStatus{Revision: name + "-1", KVCacheTokens: &v1beta1.EngineFigure{Actual: tokens}}
	pinned := &render.Revision{Plan: plan, Inputs: &render.Inputs{Inference: ws.Inference.DeepCopy()}}
	pinned.Template.Spec.Containers = []corev1.Container{{Name: "engine", Image: "mirror.example:5000/vllm/vllm-openai:v0.31.0@sha256:c1c9"}}
	return &started{ws, pinned}
}

// readStarts returns the starts for a new Workspace of the namespace team-a.
func readStarts(t *testing.T, known *catalog.Catalog, preset string, all ...*started) []catalog.Measurement {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	var objects []client.Object
	for _, s := range all {
		raw, err := json.Marshal(s.pinned)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, s.ws, &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.ws.Namespace, Name: s.ws.Name + "-1",
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "kaito.sh/v1beta1", Kind: "Workspace", Name: s.ws.Name, UID: s.ws.UID, Controller: new(true)}},
			},
			Data: runtime.RawExtension{Raw: raw},
		})
	}
	starts := evidence.Starts{Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), Machines: known, Memory: true, Speed: true}
	got, err := starts.Of(t.Context(), &v1beta1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "new"},
		Inference:  &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: preset}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestStartsOfNamespace: only some starts count. The plan has 10 GiB for 10,000 tokens.
func TestStartsOfNamespace(t *testing.T) {
	known, plans := shipped(t)
	plan := planOf(t, known, plans, "qwen3-8b", planner.Constraints{InstanceType: "Standard_NV36ads_A10_v5"})
	plan.KVCacheTokens, plan.Memory.KVCache = 10_000, 10
	want := []catalog.Measurement{{
		Engine: "vllm", Version: "0.31.0", Model: "Qwen/Qwen3-8B", Quantization: "bf16", GPU: "A10", TensorParallel: 1,
		Memory: catalog.MeasuredMemory{
			KVCacheGiB: 9, MaxModelLen: plan.MaxModelLen, MaxNumSeqs: plan.MaxNumSeqs, MaxBatchedTokens: plan.MaxBatchedTokens,
			Utilization: plan.GPUMemoryUtilization,
		},
	}}
	for _, tc := range []struct {
		reason string
		change func(*started)
		want   []catalog.Measurement
	}{
		{"less than planned", func(*started) {}, want},
		{"the user names the model in another case", func(s *started) { s.ws.Inference.Preset.Name = "Qwen3-8B" }, want},
		{"another namespace: its users decide what their engine reports", func(s *started) { s.ws.Namespace = "team-b" }, nil},
		{"another model", func(s *started) { s.ws.Inference.Preset.Name = "qwen3-4b" }, nil},
		{"a template", func(s *started) { s.ws.Inference = &v1beta1.InferenceSpec{} }, nil},
		{"nothing was read yet", func(s *started) { s.ws.Status.Engine = nil }, nil},
		{"the engine did not answer", func(s *started) { s.ws.Status.Engine.KVCacheTokens = nil }, nil},
		{"no number", func(s *started) { s.ws.Status.Engine.KVCacheTokens.Actual = "NaN" }, nil},
		{"no tokens", func(s *started) { s.ws.Status.Engine.KVCacheTokens.Actual = "-9000" }, nil},
		{"more than a number", func(s *started) { s.ws.Status.Engine.KVCacheTokens.Actual = "99999999999999999999" }, nil},
		{"a revision that is gone", func(s *started) { s.ws.Status.Engine.Revision = "gone" }, nil},
		{"a revision of another version", func(s *started) { s.pinned.Inputs = nil }, nil},
		{"the user's image", func(s *started) { s.pinned.Inputs.Inference.Engine = &v1beta1.EngineSpec{Image: "mine"} }, nil},
		{"the user's settings", func(s *started) {
			s.pinned.Inputs.Inference.Engine = &v1beta1.EngineSpec{Args: map[string]v1beta1.EngineArg{"block-size": "8"}}
		}, nil},
		{"the user's variables", func(s *started) {
			s.pinned.Inputs.Inference.Engine = &v1beta1.EngineSpec{Env: []v1beta1.EngineEnv{{Name: "A", Value: "b"}}}
		}, nil},
		{"the user's ConfigMap", func(s *started) { s.pinned.Inputs.Config = "vllm: {}" }, nil},
		{"several machines", func(s *started) { s.pinned.Plan.Nodes = 2 }, nil},
		{"stages", func(s *started) { s.pinned.Plan.PipelineParallel = 2 }, nil},
		{"adapters", func(s *started) { s.pinned.Plan.AdapterSlots = 2 }, nil},
		{"GPUs without a link of their own", func(s *started) { s.pinned.Plan.TensorParallel = 2 }, nil},
		{"a part of a GPU", func(s *started) { s.pinned.Plan.GPUResource = "nvidia.com/mig-1g.5gb" }, nil},
		{"a machine that the catalogue lacks", func(s *started) { s.pinned.Plan.InstanceType = "mine" }, nil},
		{"another engine", func(s *started) { s.pinned.Plan.Engine = "llamacpp" }, nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			copied := plan
			copied.Memory = new(*plan.Memory)
			s := startedWith("chat", "qwen3-8b", copied, "9000")
			tc.change(s)
			if diff := cmp.Diff(tc.want, readStarts(t, known, "qwen3-8b", s)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestNewestStartsCount: the number of revisions that a plan decodes is limited.
func TestNewestStartsCount(t *testing.T) {
	known, plans := shipped(t)
	plan := planOf(t, known, plans, "qwen3-8b", planner.Constraints{InstanceType: "Standard_NV36ads_A10_v5"})
	var all []*started
	for i := range 40 {
		s := startedWith(fmt.Sprint("chat-", i), "qwen3-8b", plan, strconv.Itoa(plan.KVCacheTokens-i))
		s.ws.CreationTimestamp = metav1.Unix(int64(1_800_000_000+i), 0)
		all = append(all, s)
	}
	got := readStarts(t, known, "qwen3-8b", all...)
	if len(got) != 20 || got[0].Memory.KVCacheGiB >= got[19].Memory.KVCacheGiB {
		t.Errorf("%d starts, want the 20 newest first", len(got))
	}
}

func shipped(t *testing.T) (*catalog.Catalog, *planner.Planner) {
	t.Helper()
	known, err := catalog.Load(presets.FS())
	if err != nil {
		t.Fatal(err)
	}
	return known, planner.New(known, planner.Settings{Engines: render.Engines()})
}

// planOf returns a model's plan, and fails the test if there is none.
func planOf(t *testing.T, known *catalog.Catalog, plans *planner.Planner, name string, c planner.Constraints) planner.Plan {
	t.Helper()
	plan, err := plans.Plan(requestFor(t, known, name, c))
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func requestFor(t *testing.T, known *catalog.Catalog, name string, c planner.Constraints) planner.Request {
	t.Helper()
	found, err := known.ResolveModel(name)
	if err != nil {
		t.Fatal(err)
	}
	return planner.Request{Model: &found, Constraints: c}
}

// teachable returns the plans of all models on the planner's machine that a start can correct.
func teachable(t *testing.T, known *catalog.Catalog, plans *planner.Planner) map[string]planner.Plan {
	t.Helper()
	out := map[string]planner.Plan{}
	for _, m := range known.Models() {
		plan, err := plans.Plan(planner.Request{Model: &m})
		if impossible := (*planner.InfeasibleError)(nil); errors.As(err, &impossible) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		s := startedWith("chat", m.Name, plan, strconv.Itoa(plan.KVCacheTokens))
		if len(readStarts(t, known, m.Name, s)) == 1 {
			out[m.Name] = plan
		}
	}
	if len(out) < 30 {
		t.Fatalf("%d plans can learn: too few to say anything", len(out))
	}
	return out
}

// sameSettings reports whether two plans agree in what determines the KV cache.
func sameSettings(a, b *planner.Plan) bool {
	return a.InstanceType == b.InstanceType && a.TensorParallel == b.TensorParallel && a.DataParallel == b.DataParallel &&
		a.PipelineParallel == b.PipelineParallel && a.MaxModelLen == b.MaxModelLen && a.MaxNumSeqs == b.MaxNumSeqs &&
		a.MaxBatchedTokens == b.MaxBatchedTokens && a.GPUMemoryUtilization == b.GPUMemoryUtilization && a.KVCacheType == b.KVCacheType &&
		a.Artifact.Repo == b.Artifact.Repo && a.Artifact.Quantization == b.Artifact.Quantization
}

// TestThreeStartsHalveTheResidual: the law promises too much KV cache, by up to 6 % of the GPU's memory. Three noisy
// starts, each off by up to a quarter of that error, leave at most half of it.
func TestThreeStartsHalveTheResidual(t *testing.T) {
	known, plans := shipped(t)
	random := rand.New(rand.NewPCG(3, 4))
	compared := 0
	found := teachable(t, known, plans)
	for i := range 3 * len(found) {
		name := slices.Sorted(maps.Keys(found))[i/3]
		plan := found[name]
		lack := 0.06 * plan.Memory.Total * random.Float64()
		if lack > plan.Memory.KVCache/2 || lack < 0.1 {
			continue
		}
		perGiB := float64(plan.KVCacheTokens) / plan.Memory.KVCache
		var all []*started
		for i := range 3 {
			tokens := float64(plan.KVCacheTokens) - lack*(0.75+random.Float64()/2)*perGiB
			all = append(all, startedWith(fmt.Sprint("chat-", i), name, plan, strconv.Itoa(int(tokens))))
		}
		request := requestFor(t, known, name, planner.Constraints{InstanceType: plan.InstanceType})
		request.Starts = readStarts(t, known, name, all...)
		again, err := plans.Plan(request)
		if err != nil || !sameSettings(&plan, &again) {
			continue // the start is for another set-up
		}
		compared++
		if left := again.Memory.KVCache - (plan.Memory.KVCache - lack); left > lack/2 || left < -lack/2 {
			t.Errorf("%s: the plan was %.2f GiB too high, and is %.2f GiB", name, lack, left)
		}
		if again.Memory.Basis != v1beta1.BasisMeasured {
			t.Errorf("%s: memory is %s after three starts", name, again.Memory.Basis)
		}
	}
	t.Logf("%d plans compared", compared)
	if compared < 40 {
		t.Errorf("%d plans were compared: too few to say anything", compared)
	}
}

// TestStartsNeverTeachAFit: whatever engines report, no plan gets more KV cache, and no rejected plan fits.
func TestStartsNeverTeachAFit(t *testing.T) {
	known, plans := shipped(t)
	random := rand.New(rand.NewPCG(5, 6))
	refused, lowered := 0, 0
	found := teachable(t, known, plans)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		plan := found[name]
		var all []*started
		for i := range 1 + random.IntN(4) {
			tokens := float64(plan.KVCacheTokens) * []float64{random.Float64(), 1 + random.Float64(), 0.9 + random.Float64()/10, 1e6, 1e-6}[random.IntN(5)]
			lie := startedWith(fmt.Sprint("chat-", i), name, plan, strconv.FormatInt(int64(tokens), 10))
			lie.pinned.Plan.MaxNumSeqs = 1 << random.IntN(12)
			all = append(all, lie)
		}
		starts := readStarts(t, known, name, all...)
		for range 4 {
			request := requestFor(t, known, name, planner.Constraints{InstanceType: plan.InstanceType})
			request.Objectives.MaxModelLen, request.Objectives.Concurrency = plan.MaxModelLen>>random.IntN(3), 1<<random.IntN(10)
			before, err := plans.Plan(request)
			request.Starts = starts
			after, errAfter := plans.Plan(request)
			switch {
			case err != nil && errAfter == nil:
				t.Errorf("%s, %+v: starts make it fit", name, request.Objectives)
			case err != nil:
				refused++
			case errAfter == nil && sameSettings(&before, &after):
				if after.Memory.KVCache > before.Memory.KVCache || after.KVCacheTokens > before.KVCacheTokens {
					t.Errorf("%s, %+v: KV cache %.2f GiB, %.2f without the starts", name, request.Objectives, after.Memory.KVCache, before.Memory.KVCache)
				}
				if after.Memory.KVCache < before.Memory.KVCache {
					lowered++
				}
			}
		}
	}
	t.Logf("%d refused, %d lowered", refused, lowered)
	if refused == 0 || lowered == 0 {
		t.Errorf("%d requests were refused, %d plans lowered: too few to say anything", refused, lowered)
	}
}
