// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/handover"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/capacity/nodepool"
	"github.com/modelberth/modelberth/pkg/capacity/pods"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/autoscaler"
	"github.com/modelberth/modelberth/pkg/controllers/inferenceset"
	"github.com/modelberth/modelberth/pkg/controllers/sweep"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/meter"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
	"github.com/modelberth/modelberth/pkg/events"
	"github.com/modelberth/modelberth/pkg/evidence"
	"github.com/modelberth/modelberth/pkg/evidence/speed"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/settings"
	"github.com/modelberth/modelberth/pkg/watched"
)

// backEnd is the way to get machines in this cluster: absent, or one of options.CapacityBackends except auto.
type backEnd string

// absent is the back end that auto selects without a provisioner: only existing nodes, until a provisioner is
// installed.
const absent backEnd = "absent"

// provisioner returns the catalogue's name of the component that launches machines; empty if unknown.
func (b backEnd) provisioner(o options.Controller) string {
	switch {
	case b == options.BackendPods:
		return ""
	case slices.ContainsFunc(o.NodeClasses, isAgentPool):
		return string(refusal.GPUProvisioner)
	default:
		return "karpenter"
	}
}

// isAgentPool reports whether gpu-provisioner creates the machines of a node class. Each is an AKS agent pool.
func isAgentPool(class v1beta1.NodeClassReference) bool {
	return refusal.ProviderOf(class.Group, class.Kind) == refusal.GPUProvisioner
}

// checkNodeClasses requires one provisioner for all node classes, because each provisioner supports different requests.
func checkNodeClasses(classes []v1beta1.NodeClassReference, chosen backEnd) error {
	isOther := func(class v1beta1.NodeClassReference) bool { return !isAgentPool(class) }
	switch {
	case !slices.ContainsFunc(classes, isAgentPool):
		return nil
	case slices.ContainsFunc(classes, isOther):
		return errors.New("--node-class: KaitoNodeClass belongs to gpu-provisioner and cannot be combined with Karpenter's classes: use one kind")
	case chosen == options.BackendNodePool:
		return errors.New("--capacity-backend=nodepool needs Karpenter, but --node-class names a KaitoNodeClass of gpu-provisioner: choose nodeclaim")
	default:
		return nil
	}
}

// needs returns the kinds that the back end requires.
func (b backEnd) needs() []schema.GroupKind {
	switch b {
	case options.BackendNodeClaim:
		return []schema.GroupKind{nodeClaimKind()}
	case options.BackendNodePool:
		return []schema.GroupKind{nodePoolKind(), nodeClaimKind()}
	default:
		return nil
	}
}

// nodeClaimKind returns the kind that Karpenter's back ends require.
func nodeClaimKind() schema.GroupKind {
	return schema.GroupKind{Group: nodeclaim.GroupVersion().Group, Kind: "NodeClaim"}
}

func nodePoolKind() schema.GroupKind {
	return schema.GroupKind{Group: nodeclaim.GroupVersion().Group, Kind: "NodePool"}
}

// cloudsFor returns the clouds of possible machine types. For back end pods without a configured cloud, these are the
// clouds of the existing nodes.
func cloudsFor(ctx context.Context, live client.Reader, asked []string, chosen backEnd) ([]string, error) {
	if chosen != options.BackendPods || len(asked) > 0 {
		return asked, nil
	}
	nodes := &corev1.NodeList{}
	if err := live.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("detecting the cloud of the nodes: %w", err)
	}
	return cloudsOf(nodes.Items), nil
}

// chooseBackEnd probes the cluster for the configured back end, or for the best available one. It also returns
// Karpenter's served kinds, because an earlier back end may have created machines of them.
func chooseBackEnd(config *rest.Config, o options.Controller) (backEnd, kinds, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", nil, fmt.Errorf("probing for Karpenter: %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return "", nil, fmt.Errorf("probing for Karpenter: %w", err)
	}
	served, err := servedBy(mapper)
	if err != nil {
		return "", nil, err
	}
	ofGateways, err := servedForGateways(mapper, o.Gateway)
	if err != nil {
		return "", nil, err
	}
	chosen, err := choose(served, o.CapacityBackend)
	if err != nil {
		return "", nil, err
	}
	return chosen, append(served, ofGateways...), checkNodeClasses(o.NodeClasses, chosen)
}

// kinds are Karpenter's kinds in a cluster.
type kinds []schema.GroupKind

func (k kinds) has(kind schema.GroupKind) bool { return slices.Contains(k, kind) }

// sources returns the watches on machines.
func (k kinds) sources() []watch.Source {
	var out []watch.Source
	if k.has(nodeClaimKind()) {
		out = append(out, watch.Source{Object: nodeclaim.Object(), Frees: always})
	}
	if k.has(nodePoolKind()) {
		out = append(out, watch.Source{Object: nodepool.Object(), Frees: always})
	}
	return out
}

func always(context.Context, client.Object) bool { return true }

func servedBy(mapper meta.RESTMapper) (kinds, error) {
	var served kinds
	for _, kind := range []schema.GroupKind{nodeClaimKind(), nodePoolKind()} {
		_, err := mapper.RESTMapping(kind, nodeclaim.GroupVersion().Version)
		if err != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("probing for Karpenter: %w", err)
		}
		if err == nil {
			served = append(served, kind)
		}
	}
	return served, nil
}

func choose(served kinds, asked string) (backEnd, error) {
	isAuto := asked == "" || asked == options.BackendAuto
	chosen := backEnd(asked)
	if isAuto {
		chosen = options.BackendNodeClaim
	}
	var missing []string
	for _, kind := range chosen.needs() {
		if !served.has(kind) {
			missing = append(missing, strings.ToLower(kind.Kind)+"s."+kind.Group)
		}
	}
	switch {
	case len(missing) == 0:
		return chosen, nil
	case isAuto:
		return absent, nil
	default:
		return "", fmt.Errorf("--capacity-backend=%s: this cluster does not serve %s (%s): install Karpenter with a provider "+
			"for your cloud, or choose pods, existing or auto", asked, strings.Join(missing, ", "), nodeclaim.GroupVersion().Version)
	}
}

// cloudsOf returns the clouds of nodes, from the scheme of their provider IDs.
func cloudsOf(nodes []corev1.Node) []string {
	var clouds []string
	for i := range nodes {
		scheme, _, _ := strings.Cut(nodes[i].Spec.ProviderID, "://")
		cloud, isKnown := map[string]string{"azure": "azure", "aws": "aws", "gce": "gcp"}[scheme]
		if isKnown && !slices.Contains(clouds, cloud) {
			clouds = append(clouds, cloud)
		}
	}
	slices.Sort(clouds)
	return clouds
}

// site is the environment of a back end: a client for caches and writes, a client of the API server, the indexer of
// the caches, the clock, and the served kinds.
type site struct {
	mgr     manager.Manager
	cached  client.Client
	live    client.Reader
	applier *apply.Applier
	indexes *indexes
	clock   clock.PassiveClock
	served  kinds
	// prices of machines without an object of ours.
	prices pods.Prices
	// uses are the requests of pods on nodes; nil if the controller may not read them.
	uses planning.Uses
	// namespaces are the watched namespaces.
	namespaces watched.Namespaces
	// definitions are our CustomResourceDefinitions.
	definitions *definitions
	// files are the calibration files. They keep the planner up to date.
	files *evidence.Files
	// speeds measures engines from their metrics; nil if plans do not use measured speeds.
	speeds *speed.Meter
	// loads are the requests of autoscaled replicas.
	loads *autoscaler.Loads
	// routers count the requests to two templates; nil if none is installed.
	routers inferenceset.Routers
	// spent are the costs of all machines.
	spent capacity.CostSource
	// costing sets up the cost ledger.
	costing step
	// gateways are the settings for pools of gateways.
	gateways options.Gateway
	// settings come from a ConfigMap; nil if there is none.
	settings *settings.Keeper
	// hooks are empty outside of tests.
	hooks Hooks
	// leads is closed once this replica leads and the indexed caches are filled.
	leads chan struct{}
}

func siteOf(ctx context.Context, mgr manager.Manager, served kinds, watch options.Watch, hooks Hooks) (site, error) {
	asked := &indexes{}
	cached, err := indexed(ctx, unpacking{mgr.GetClient()}, asked, looksUp(served))
	if err != nil {
		return site{}, err
	}
	namespaces := watched.Namespaces(watch.Namespaces)
	out := site{
		// Device plugins may be in any namespace.
		live: namespaces.Reader(mgr.GetAPIReader(), mgr.GetScheme(), mgr.GetRESTMapper(), &appsv1.DaemonSetList{}),
		mgr:  mgr, cached: cached, indexes: asked, clock: clock.RealClock{}, served: served, namespaces: namespaces,
		loads: autoscaler.NewLoads(),
		leads: make(chan struct{}), hooks: hooks,
	}
	if out.definitions, err = cacheDefinitions(mgr); err != nil {
		return site{}, err
	}
	if watch.SeesNodes() {
		if out.uses, err = podsOfNodes(mgr); err != nil {
			return site{}, err
		}
	}
	if hooks.WrapClient != nil {
		out.cached = hooks.WrapClient(out.cached)
	}
	if hooks.Clock != nil {
		out.clock = hooks.Clock
	}
	return out, nil
}

// newBackEnd returns the back end together with the retired ones, which manage their remaining machines. It also
// returns the sources of events about machines. Without a provisioner, the controller still runs: it plans, and reports
// what is missing.
func newBackEnd(ctx context.Context, at site, o options.Controller, chosen backEnd) (*handover.BackEnds, []watch.Source, error) {
	sources := at.served.sources()
	var set handover.BackEnd
	var err error
	switch chosen {
	case options.BackendNodeClaim:
		set = at.nodeClaims(o.NodeClasses[0])
	case options.BackendNodePool:
		var ofPods []watch.Source
		set, ofPods, err = at.nodePools(ctx, o)
		sources = append(sources, ofPods...)
	case options.BackendPods:
		var ofPods []watch.Source
		set, ofPods, err = waitingPods(ctx, at)
		sources = append(sources, ofPods...)
	case options.BackendExisting:
		set = capacity.Absent{
			Why: "this installation uses only existing nodes", Fix: "add a suitable node, or have the administrator choose another back end (chart value capacity.backend)",
		}
	default:
		set, err = nothing(at)
	}
	if err != nil {
		return nil, nil, err
	}
	all := handover.New(at.clock, set, at.retired(o, chosen)...)
	if err := meter.RegisterSpending(metrics.Registry, at.cached, all, at.leads); err != nil {
		return nil, nil, err
	}
	if err := meter.RegisterPopulation(metrics.Registry, at.cached, at.leads); err != nil {
		return nil, nil, err
	}
	return all, sources, at.sweep(o, all)
}

// retired returns the back ends that may still have machines from before a change of the back end.
func (at site) retired(o options.Controller, chosen backEnd) []handover.Retired {
	var out []handover.Retired
	if at.served.has(nodePoolKind()) && chosen != options.BackendNodePool {
		out = append(out, nodepool.NewRetired(at.cached, at.live, at.nodeClaims(v1beta1.NodeClassReference{})))
	}
	if at.served.has(nodeClaimKind()) {
		for _, class := range []v1beta1.NodeClassReference{{}, {Group: "kaito.sh", Kind: "KaitoNodeClass"}} {
			if chosen != options.BackendNodeClaim || isAgentPool(class) != isAgentPool(o.NodeClasses[0]) {
				out = append(out, at.nodeClaims(class))
			}
		}
	}
	if chosen != options.BackendPods {
		out = append(out, pods.NewRetired(at.cached, at.live, at.clock, at.prices))
	}
	return out
}

func (at site) nodeClaims(class v1beta1.NodeClassReference) *nodeclaim.Provisioner {
	return nodeclaim.New(at.cached, at.live, class)
}

// nodePools returns the back end for static or dynamic NodePools. For dynamic NodePools, events show why Karpenter
// creates no machine.
func (at site) nodePools(ctx context.Context, o options.Controller) (*nodepool.Provisioner, []watch.Source, error) {
	claims := at.nodeClaims(o.NodeClasses[0])
	if o.StaticNodePools {
		return nodepool.NewStatic(at.cached, at.live, claims), nil, nil
	}
	if err := events.Index(ctx, at.indexes, events.Subject); err != nil {
		return nil, nil, err
	}
	pools := nodepool.New(at.cached, at.live, claims)
	return pools, []watch.Source{{Object: &corev1.Event{}, WorkspacesOf: each(pools.WorkspaceOf)}}, nil
}

// ticking returns the clock for periodic work: a test's clock if it has tickers, or else the wall clock.
func (at site) ticking() clock.WithTicker {
	if ticking, ok := at.clock.(clock.WithTicker); ok {
		return ticking
	}
	return clock.RealClock{}
}

// sweep adds the periodic sweep of all machines.
func (at site) sweep(o options.Controller, held sweep.Machines) error {
	sweeper := &sweep.Sweeper{Cached: at.cached, Live: at.live, Machines: held, Clock: at.ticking()}
	if o.SweepKAITO && at.served.has(nodeClaimKind()) {
		sweeper.Strays = nodeclaim.KAITO{Provisioner: at.nodeClaims(v1beta1.NodeClassReference{})}
	}
	if err := at.mgr.Add(sweeper); err != nil {
		return fmt.Errorf("adding the sweeper: %w", err)
	}
	return nil
}

func waitingPods(ctx context.Context, at site) (*pods.Provisioner, []watch.Source, error) {
	if err := events.Index(ctx, at.indexes, pods.Subject); err != nil {
		return nil, nil, err
	}
	waiting := pods.New(at.cached, at.live, at.clock, at.prices)
	return waiting, []watch.Source{
		{Object: &corev1.Pod{}, Frees: waiting.Frees, WorkspacesOf: each(func(_ context.Context, pod client.Object) types.NamespacedName {
			return types.NamespacedName{Namespace: pod.GetNamespace(), Name: pod.GetLabels()[v1beta1.LabelWorkspace]}
		})},
		{Object: &corev1.Event{}, WorkspacesOf: each(waiting.WorkspaceOf)},
		{Object: &corev1.Node{}, WorkspacesOf: waiting.Awaiting},
	}, nil
}

// each adapts a function that returns one Workspace to the interface for several.
func each(of func(context.Context, client.Object) types.NamespacedName) func(context.Context, client.Object) []types.NamespacedName {
	return func(ctx context.Context, object client.Object) []types.NamespacedName {
		return []types.NamespacedName{of(ctx, object)}
	}
}

// nothing returns the back end without a provisioner. It restarts the process once Karpenter is installed.
func nothing(at site) (capacity.Absent, error) {
	watch := &installWatch{mapper: at.mgr.GetRESTMapper(), kind: nodeClaimKind()}
	if err := at.mgr.Add(watch); err != nil {
		return capacity.Absent{}, fmt.Errorf("watching for Karpenter: %w", err)
	}
	return capacity.Absent{
		Why: "this cluster does not have the CustomResourceDefinition nodeclaims.karpenter.sh",
		Fix: "install Karpenter with a provider for your cloud, or have the administrator set the chart's capacity.backend to pods",
	}, nil
}
