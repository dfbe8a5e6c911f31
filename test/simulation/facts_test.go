// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing/fstest"
	"time"

	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/request"
	"github.com/modelberth/modelberth/pkg/sku"
	"github.com/modelberth/modelberth/pkg/workload"
	"github.com/modelberth/modelberth/presets"
)

// facts are common to all runs.
type facts struct {
	scheme *runtime.Scheme
	mapper meta.RESTMapper
	// markets are the prices of a version of the controller, and those of the next.
	markets     [2]market
	words       diagnosis.Signatures
	acquisition acquire.Settings
	classes     []v1beta1.NodeClassReference
	render      render.Settings

	mu      sync.Mutex
	refused map[refusalKey]said
	prices  map[string]float64
}

// Models of the simulation: one for a single GPU, and one for both GPUs of a Pair or two machines.
const (
	smallModel = "phi-4-mini-instruct"
	largeModel = "phi-4"
)

// market is a version's catalogue of machine types and prices.
type market struct {
	catalog *catalog.Catalog
	planner *planner.Planner
}

// machineTypes are six in two families. Their prices tell them apart.
func machineTypes() []sku.SKU { return machineTypesAt(1, 1) }

// machineTypesAt are those types with the prices of each family multiplied.
func machineTypesAt(a, b float64) []sku.SKU {
	machine := func(name, family, gpu string, gpus int, price float64) sku.SKU {
		return sku.SKU{
			Name: name, Cloud: "azure", GPU: gpu, GPUs: gpus, Resource: "nvidia.com/gpu", VCPUs: 16 * gpus, MemoryGiB: 110 * float64(gpus),
			LinkedGPUs: gpus / 2 * 2, QuotaFamily: family, Spot: true,
			Prices: map[string]float64{"eastus": price}, SpotPrices: map[string]float64{"eastus": price / 4},
		}
	}
	return []sku.SKU{
		machine("Standard_NC8_A", "Family A", "A10", 1, 1*a),
		machine("Standard_NC16_A", "Family A", "A10", 1, 1.5*a),
		machine("Standard_NC32_A", "Family A", "A10", 2, 2.5*a),
		machine("Standard_ND24_B", "Family B", "A100-80-PCIe", 1, 4*b),
		machine("Standard_ND32_B", "Family B", "A100-80-PCIe", 1, 5*b),
		machine("Standard_ND48_B", "Family B", "A100-80-PCIe", 2, 9*b),
	}
}

func newFacts() (*facts, error) {
	out := &facts{
		scheme:  runtime.NewScheme(),
		classes: []v1beta1.NodeClassReference{{Group: "karpenter.azure.com", Kind: "AKSNodeClass", Name: "gpu"}},
		render:  render.Settings{Workload: workload.Settings{AgentImage: "agent", Weights: workload.Weights{}}},
		refused: map[refusalKey]said{}, prices: map[string]float64{},
	}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme, nodeclaim.AddToScheme} {
		if err := add(out.scheme); err != nil {
			return nil, err
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind), meta.RESTScopeNamespace)
	out.mapper = mapper
	var err error
	if out.markets[0], err = newMarket(machineTypes()); err != nil {
		return nil, err
	}
	if out.markets[1], err = newMarket(machineTypesAt(3, 0.75)); err != nil {
		return nil, err
	}
	if out.words, err = diagnosis.Shipped(); err != nil {
		return nil, err
	}
	out.acquisition = acquire.Settings{
		Deadlines: refusal.Deadlines{Launched: 10 * time.Minute, Registered: 20 * time.Minute, Initialized: 30 * time.Minute},
		NodeGrace: 10 * time.Minute, FailureDeadline: failureDeadline, IdleDeadline: idleDeadline,
	}
	out.acquisition.Rules, err = refusal.Shipped()
	return out, err
}

// newMarket sells machines of some types.
func newMarket(machines []sku.SKU) (market, error) {
	known, err := smallCatalog(machines)
	if err != nil {
		return market{}, err
	}
	settings := planner.Settings{Clouds: []string{"azure"}, Region: "eastus", Engines: render.Engines()}
	return market{catalog: known, planner: planner.New(known, settings)}, nil
}

// smallCatalog is the shipped one with other machines.
func smallCatalog(types []sku.SKU) (*catalog.Catalog, error) {
	files := fstest.MapFS{}
	err := fs.WalkDir(presets.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		isWanted := strings.HasSuffix(path, ".yaml") && !strings.HasPrefix(path, "skus/") && !strings.HasPrefix(path, "models/")
		if err != nil || entry.IsDir() || !isWanted && path != "models/phi.yaml" {
			return err
		}
		data, err := fs.ReadFile(presets.FS(), path)
		files[path] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the presets: %w", err)
	}
	// JSON is YAML.
	machines, err := json.Marshal(map[string]any{
		"source": "made up", "date": "2026-01-31", "cloud": "azure", "region": "eastus", "currency": "USD", "skus": types,
	})
	if err != nil {
		return nil, err
	}
	files["skus/azure.yaml"] = &fstest.MapFile{Data: machines}
	return catalog.Load(files)
}

// price is the cost of a Workspace in a market on machines of one type; negative if they are unsuitable.
func (f *facts) price(at int, ws *v1beta1.Workspace, machine string, capacityType v1beta1.CapacityType) (float64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := fmt.Sprintf("%d %s %s %s", at, whatOf(ws), machine, capacityType)
	known, ok := f.prices[key]
	if ok {
		return known, nil
	}
	alone := &v1beta1.Workspace{Inference: ws.Inference}
	alone.Resource.Count, alone.Resource.InstanceType = ws.Resource.Count, machine
	alone.Resource.Placement = &v1beta1.PlacementSpec{
		NodeSource: v1beta1.NodeSourceProvisioned, CapacityTypes: []v1beta1.CapacityType{capacityType},
	}
	asked := request.ForTemplate
	if ws.Inference.Preset != nil {
		m, err := f.markets[at].catalog.ResolveModel(ws.Inference.Preset.Name)
		if err != nil {
			return 0, err
		}
		made, err := request.ForModel(alone, &m, engine.Config{}, f.markets[at].catalog)
		if err != nil {
			return 0, err
		}
		asked = func(*v1beta1.Workspace) planner.Request { return made }
	}
	price := -1.0
	if plan, err := f.markets[at].planner.Plan(asked(alone)); err == nil {
		price = plan.HourlyPrice
	}
	f.prices[key] = price
	return price, nil
}
