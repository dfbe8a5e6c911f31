// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app wires the controller's process together: catalogue, planner, caches, back ends and
// controllers, from validated options.
//
// It decides only how the parts are connected.
package app

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/agent/members"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/admission"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/capacity/preflight"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/controllers/autoscaler"
	"github.com/modelberth/modelberth/pkg/controllers/endpoint"
	"github.com/modelberth/modelberth/pkg/controllers/gateway"
	"github.com/modelberth/modelberth/pkg/controllers/inferenceset"
	"github.com/modelberth/modelberth/pkg/controllers/workspace"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/meter"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/engineprobe"
	"github.com/modelberth/modelberth/pkg/evidence"
	"github.com/modelberth/modelberth/pkg/hub"
	"github.com/modelberth/modelberth/pkg/hub/describe"
	"github.com/modelberth/modelberth/pkg/isolation"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/workload"
	"github.com/modelberth/modelberth/presets"
)

// reconcileDeadline bounds one pass over one Workspace, so that a silent API server does not block a worker forever.
const reconcileDeadline = time.Minute

// Scheme returns a scheme with all types of the controller.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, v1beta1.AddToScheme, nodeclaim.AddToScheme, gateway.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	return scheme, nil
}

// Hooks let tests change parts of the process.
type Hooks struct {
	// WrapClient wraps the client for caches and writes.
	WrapClient func(client.Client) client.Client
	// Clock replaces the wall clock.
	Clock clock.PassiveClock
	// SkipNameValidation lets one process run several managers.
	SkipNameValidation bool
	// Autoscaler changes the configuration of the autoscaler.
	Autoscaler func(*autoscaler.Config)
	// Sets changes the configuration of the controller of InferenceSets.
	Sets func(*inferenceset.Config)
}

// NewManager returns a manager that is ready to start. The manager sets up the controllers once it leads.
func NewManager(ctx context.Context, config *rest.Config, o options.Controller, hooks Hooks) (manager.Manager, error) {
	known, err := loadCatalog(o.CatalogOverlay)
	if err != nil {
		return nil, err
	}
	at, chosen, err := settle(ctx, accessOf(config, o), &o, hooks)
	if err != nil {
		return nil, err
	}
	if at.files, err = at.planWithFiles(ctx, known, o, chosen); err != nil {
		return nil, err
	}
	at.prices = at.files.Planner.MachinePrice
	provisioner, sources, err := newBackEnd(ctx, at, o, chosen)
	if err != nil {
		return nil, err
	}
	former, sources, err := withKAITO(ctx, at, sources)
	if err != nil {
		return nil, err
	}
	at.spent = at.costsWith(former, provisioner)
	keeper := keepCosts(&at, o, chosen, sources, controllerOptions(o, hooks))
	at.applier = apply.New(at.cached, at.live, at.mgr.GetCache(), at.clock)
	endpoints := endpoint.New(at.applier, at.clock)
	reconciler, err := newReconciler(known, workspace.Config{
		Costs:  costsOf(keeper),
		Ledger: ledger.New(at.spent),
		Limits: at.limits(o), HostPaths: o.HostPaths,
		Client:      at.cached,
		Live:        at.live,
		Provisioner: provisioner,
		KAITO:       foreignOf(former),
		Namespaces:  at.namespaces,
		Schema:      at.definitions.fields,
		Uses:        at.uses,
		Applier:     at.applier,
		Endpoints:   endpoints,
		Planner:     at.files.Planner,
		Events:      at.mgr.GetEventRecorderFor(v1beta1.ManagedBy),
		Speeds:      at.stored(),
		Clock:       at.clock,
	}, o, chosen)
	if err != nil {
		return nil, err
	}
	return at.mgr, at.setUp(ctx, reconciler, append(sources, at.workspaceSource()), endpoints, controllerOptions(o, hooks))
}

// settle probes the cluster for unset options and completes them. It returns the site and the back end.
func settle(ctx context.Context, config *rest.Config, o *options.Controller, hooks Hooks) (site, backEnd, error) {
	scheme, err := Scheme()
	if err != nil {
		return site{}, "", err
	}
	if o.Watch.Namespaces, err = readable(ctx, config, scheme, o.Watch.Namespaces); err != nil {
		return site{}, "", err
	}
	chosen, served, err := chooseBackEnd(config, *o)
	if err != nil {
		return site{}, "", err
	}
	mgr, err := bareManager(config, scheme, *o, cacheOptions(*o, chosen, served))
	if err != nil {
		return site{}, "", err
	}
	at, err := siteOf(ctx, mgr, served, o.Watch, hooks)
	if err != nil {
		return site{}, "", err
	}
	at.speeds, at.routers, at.gateways = speedsOf(*o), at.routersOf(o.Routers), o.Gateway
	if at.settings, err = at.loadSettings(ctx, *o); err != nil {
		return site{}, "", err
	}
	o.Clouds, err = cloudsFor(ctx, at.live, o.Clouds, chosen)
	return at, chosen, err
}

func controllerOptions(o options.Controller, hooks Hooks) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: o.Workers,
		ReconciliationTimeout:   reconcileDeadline,
		CacheSyncTimeout:        syncDeadline,
		SkipNameValidation:      &hooks.SkipNameValidation,
	}
}

// preflightOf returns the administrator's policy for the checks before a purchase. It leaves the taints and device
// plugins of node groups to their administrator.
func preflightOf(o options.Controller, chosen backEnd) (preflight.Policy, error) {
	checker, err := admission.New()
	if err != nil {
		return preflight.Policy{}, err
	}
	out := preflight.Policy{
		Admission: admission.NewBook(checker), DevicePlugins: o.GPUPluginCheck, Dedication: o.Dedication,
		DaemonSetNamespaces: o.DaemonSetNamespaces,
	}
	if chosen == options.BackendPods {
		out.DevicePlugins, out.Dedication = false, preflight.Disabled
	}
	return out, nil
}

func limitsOf(spending options.Spending) purchase.Limits {
	out := purchase.Limits{MaxHourlyPrice: spending.DefaultMaxHourlyPrice, InstanceTypes: spending.InstanceTypes}
	out.Ceilings.Workspace, out.Ceilings.Namespace, out.Ceilings.Cluster = spending.Ceilings()
	return out
}

// setUp registers the leader's steps: they index the caches and then start the controllers.
func (at site) setUp(
	ctx context.Context, workspaces *workspace.Reconciler, sources []watch.Source, endpoints *endpoint.Queue, run controller.Options,
) error {
	if at.speeds != nil {
		at.speeds.Due = workspaces.LookAgain
	}
	if err := watch.Index(ctx, at.indexes); err != nil {
		return err
	}
	if err := at.followSettings(workspaces, run); err != nil {
		return err
	}
	sets, err := at.inferenceSets(ctx, run)
	if err != nil {
		return err
	}
	scaling, err := at.autoscaling(run)
	if err != nil {
		return err
	}
	pooling, err := at.pools(run)
	if err != nil {
		return err
	}
	return onceElected(at.mgr,
		func(ctx context.Context) error { return at.definitions.watch(ctx, at.mgr) }, // before any object is read
		func(ctx context.Context) error { return at.indexes.make(ctx, at.mgr.GetFieldIndexer()) },
		at.useCalibrations(workspaces.LookAgain),
		func(context.Context) error { return workspaces.SetupWithManager(at.mgr, sources, run) },
		func(context.Context) error { return endpoints.SetupWithManager(at.mgr, run, workspaces.LookAgain) },
		sets,
		at.costing,
		scaling,
		pooling,
		func(context.Context) error { close(at.leads); return nil },
	)
}

// bareManager returns a manager without controllers. It serves health checks and metrics.
func bareManager(config *rest.Config, scheme *runtime.Scheme, o options.Controller, watched cache.Options) (manager.Manager, error) {
	served, err := metricsOptions(o.Metrics)
	if err != nil {
		return nil, err
	}
	mgr, err := manager.New(config, managerOptions(scheme, o, watched, served))
	if err != nil {
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	return mgr, addProbes(mgr)
}

// accessOf returns the controller's client configuration for the API server.
func accessOf(config *rest.Config, o options.Controller) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = float32(o.QPS), o.Burst
	// Warnings are for the author of the manifest, who has already seen them. The API server would also warn about the
	// finalizer's name at every write, but that name is part of our API.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	return config
}

// newReconciler adds the settings that follow from the catalogue and the options.
func newReconciler(
	known *catalog.Catalog, config workspace.Config, o options.Controller, chosen backEnd,
) (*workspace.Reconciler, error) {
	var err error
	if config.Acquisition, err = acquisitionOf(o, chosen); err != nil {
		return nil, err
	}
	if config.EngineErrors, err = diagnosis.Shipped(); err != nil {
		return nil, fmt.Errorf("loading the error signatures of engines: %w", err)
	}
	if config.Preflight, err = preflightOf(o, chosen); err != nil {
		return nil, err
	}
	prober := engineprobe.New()
	config.Engines, config.AdapterProbe = prober, prober
	config.Isolation = guard(o, config.Clock)
	config.Memory = &cooldown.Memory{}
	if config.Metrics, err = meter.New(metrics.Registry, config.Memory, config.Clock); err != nil {
		return nil, err
	}
	config.Catalog = known
	if o.DescribeModels { // without permission, the controller never contacts the hub
		config.Hub = describe.NewCache(o.HubEndpoint, hub.NewHTTPClient(o.Workers), config.Clock)
		if config.AdapterRanks, err = adapterRanks(o.HubEndpoint); err != nil {
			return nil, err
		}
	}
	config.Render = render.Settings{
		Workload: workload.Settings{
			AgentImage: o.AgentImage, HubEndpoint: o.HubEndpoint, ImagePullPolicy: o.ImagePullPolicy,
			RDMA: workload.RDMA(o.RDMA), Weights: workload.Weights(o.Weights), KVEvents: o.KVEvents,
			SharedNodes: chosen == options.BackendPods, Egress: destinations(o.Egress), HoldGroups: config.Isolation.HoldsGroups(),
		},
		EngineImages: o.EngineImages, EngineRegistry: o.EngineRegistry, AllowRemoteCode: o.AllowRemoteCode, MediaDomains: o.MediaDomains,
	}
	config.NodeClasses = o.NodeClasses
	config.Signatures = signatures(o)
	if own := o.Calibration; own.OwnStarts || own.OwnSpeeds {
		config.Starts = (&evidence.Starts{Reader: config.Client, Machines: known, Memory: own.OwnStarts, Speed: own.OwnSpeeds}).Of
	}
	return workspace.New(config), nil
}

// newPlanner returns the planner of all Workspaces.
func newPlanner(known *catalog.Catalog, o options.Controller, chosen backEnd, prices pricing) *planner.Planner {
	return planner.New(known, planner.Settings{
		Clouds: o.Clouds, Region: prices.region, RegionUnknown: prices.unknown, Engines: render.Engines(),
		Provisioner: chosen.provisioner(o), OSDiskGiB: o.OSDiskGiB, LocalDisk: o.LocalDisk, NoRDMA: o.RDMA.Resource == "",
	})
}

// guard returns the check of a group's isolation. It probes members from the controller's pod, because that pod is no
// peer of any group.
func guard(o options.Controller, c clock.PassiveClock) *isolation.Guard {
	prober := isolation.Prober{
		Dial: new(net.Dialer).DialContext, OpenPort: workload.ProbePort, PeerPort: workload.PeerPort, Path: members.Path,
	}
	return isolation.NewGuard(o.MultiNode, prober.Probe, c)
}

func destinations(egress []options.Destination) []workload.Destination {
	out := make([]workload.Destination, len(egress))
	for i, each := range egress {
		out[i] = workload.Destination{CIDR: each.CIDR.String(), Ports: each.Ports}
	}
	return out
}

// acquisitionOf returns the rules and deadlines for machines.
func acquisitionOf(o options.Controller, chosen backEnd) (acquire.Settings, error) {
	rules, err := refusal.Shipped()
	if err != nil {
		return acquire.Settings{}, fmt.Errorf("loading the wording of refusals: %w", err)
	}
	out := acquire.Settings{
		Rules: rules,
		Deadlines: refusal.Deadlines{
			Launched: o.LaunchDeadline, Registered: o.RegistrationDeadline, Initialized: o.InitializationDeadline,
		},
		NodeGrace: o.NodeGrace, FailureDeadline: o.FailureDeadline, IdleDeadline: o.IdleDeadline,
	}
	switch {
	case o.CapacityWording == options.WordingNone:
		out.Wording = new(refusal.UnknownProvider)
	case chosen == options.BackendPods: // cluster autoscaler requests the machines, in any cloud
		out.Wording = new(refusal.ClusterAutoscaler)
	case o.CapacityWording == "":
	default:
		out.Wording = new(refusal.Provider(o.CapacityWording))
	}
	return out, nil
}

func managerOptions(
	scheme *runtime.Scheme, o options.Controller, watched cache.Options, served metricsserver.Options,
) manager.Options {
	return manager.Options{
		Scheme:                        scheme,
		Cache:                         watched,
		Metrics:                       served,
		HealthProbeBindAddress:        o.HealthAddress,
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              cmp.Or(o.LeaseName, options.DefaultLeaseName),
		LeaderElectionNamespace:       o.LeaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true,
	}
}

func addProbes(mgr manager.Manager) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	return nil
}

func loadCatalog(overlay string) (*catalog.Catalog, error) {
	var overlays []fs.FS
	if overlay != "" {
		overlays = append(overlays, os.DirFS(overlay))
	}
	known, err := catalog.Load(presets.FS(), overlays...)
	if err != nil {
		return nil, fmt.Errorf("loading the catalogue: %w", err)
	}
	return known, nil
}
