// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package options holds the settings of the controller's process. It parses and validates the flags once. The other
// packages get plain values.
//
// It must not know the effect of the settings.
package options

import (
	"errors"
	"flag"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/preflight"
	"github.com/modelberth/modelberth/pkg/isolation"
	"github.com/modelberth/modelberth/pkg/workload"
)

// Controller are the settings of modelberth-controller.
type Controller struct {
	Metrics       Metrics
	HealthAddress string
	// LeaderElect elects one of several replicas as the leader. Only the leader acts. LeaderElectionNamespace is the
	// namespace of the Lease; empty means the pod's own.
	LeaderElect             bool
	LeaderElectionNamespace string
	// LeaseName is the name of the Lease; empty means DefaultLeaseName.
	LeaseName string
	// Gateway are the settings for gateways.
	Gateway Gateway
	// Watch are the namespaces of the served Workspaces.
	Watch Watch
	// Workers is the number of Workspaces that are reconciled at once.
	Workers int
	// QPS and Burst limit requests to the API server.
	QPS   float64
	Burst int
	// CatalogOverlay is a directory with files that add to the catalogue or replace its entries.
	CatalogOverlay string
	// Calibration has the administrator's measured runs.
	Calibration Calibration
	// Clouds of allowed machine types; empty means all. Region is the region for prices.
	Clouds []string
	Region string
	// OSDiskGiB is the OS disk of the NodeClasses' machines; 0 means unknown. LocalDisk is set if pods and images use a
	// machine's local disks when these are larger.
	OSDiskGiB int
	LocalDisk bool
	// NodeClasses are for purchases. The first is the default.
	NodeClasses []v1beta1.NodeClassReference
	// AgentImage is the image of modelberth-agent. EngineImages replaces engines' images by name.
	AgentImage   string
	EngineImages map[string]string
	// EngineRegistry replaces the registry of the other engines' images.
	EngineRegistry string
	// AllowRemoteCode lets the engine run code from models' repositories.
	AllowRemoteCode bool
	// ImagePullPolicy is for the pods' images; empty means the cluster's default.
	ImagePullPolicy string
	// HubEndpoint is the URL of the Hugging Face-compatible hub.
	HubEndpoint string
	// DescribeModels lets the controller query the hub for models that are not in the catalogue.
	DescribeModels bool
	// MultiNode decides when several machines may serve one model. It is one of isolation.Policies.
	MultiNode isolation.Policy
	// MediaDomains are the allowed hosts of media linked in requests; "*" is every host.
	MediaDomains []string
	// Egress is the allowed egress of presets' pods, besides DNS and their peers; empty means everything but cloud
	// metadata.
	Egress []Destination
	// Weights has the settings for models' files. HostPaths are the allowed directories of nodes.
	Weights   Weights
	HostPaths []string
	// Artifacts has the settings for signatures of weights.
	Artifacts Artifacts
	// LaunchDeadline, RegistrationDeadline and InitializationDeadline are the time limits for the stages of a machine.
	// NodeGrace is the time limit for a node that is not Ready. 0 means no limit.
	LaunchDeadline         time.Duration
	RegistrationDeadline   time.Duration
	InitializationDeadline time.Duration
	NodeGrace              time.Duration
	// FailureDeadline is the time that pods may fail permanently before the controller releases their machines. 0 means
	// no limit.
	FailureDeadline time.Duration
	// IdleDeadline is the time that machines may wait for the first ready pod before the controller releases them. 0
	// means no limit.
	IdleDeadline time.Duration
	// CapacityBackend is the way to get machines, one of CapacityBackends. Empty means BackendAuto.
	CapacityBackend string
	// StaticNodePools gives NodePools a fixed number of machines.
	StaticNodePools bool
	// CapacityWording names the provisioner whose messages the controller interprets; empty means the NodeClass's
	// provisioner.
	CapacityWording string
	// GPUPluginCheck refuses machines with GPUs while no device plugin would advertise the GPUs.
	GPUPluginCheck bool
	// Dedication decides when machines get the taint of their Workspace.
	Dedication preflight.Dedication
	// DaemonSetNamespaces are the namespaces whose DaemonSets count, as names or as prefixes that end with *.
	DaemonSetNamespaces []string
	// RDMA is the resource that pods on several machines request to communicate over RDMA.
	RDMA RDMA
	// KVEvents is the consumer of the KV cache's events.
	KVEvents workload.Consumer
	// SweepKAITO also releases KAITO's machines of deleted Workspaces.
	SweepKAITO bool
	// Spending limits purchases. With Settings, it has the defaults, and the ConfigMap has the limits.
	Spending Spending
	// Settings is the ConfigMap with the settings that can change while the controller runs; empty for none.
	Settings types.NamespacedName
	// LogLevel is the least severe level of log entries; nil if it never changes.
	LogLevel *zap.AtomicLevel
	// Routers has the settings for the comparisons of templates.
	Routers Routers
	// Cost has the settings of the cost ledger.
	Cost Cost
}

// DefaultLeaseName is the default name of the leader's Lease.
const DefaultLeaseName = "modelberth-controller"

// The ways to get machines. BackendAuto probes the cluster at the start.
const (
	BackendAuto      = "auto"
	BackendNodeClaim = "nodeclaim"
	BackendNodePool  = "nodepool"
	BackendPods      = "pods"
	BackendExisting  = "existing"
)

// CapacityBackends returns the values of CapacityBackend.
func CapacityBackends() []string {
	return []string{BackendAuto, BackendNodeClaim, BackendNodePool, BackendPods, BackendExisting}
}

// CapacityWordings returns the values of CapacityWording. With none, the controller ignores messages and judges
// machines only by their age and disappearance.
func CapacityWordings() []string {
	return []string{"", "karpenter-azure", "karpenter-aws", "gpu-provisioner", WordingNone}
}

// WordingNone is the CapacityWording for unknown provisioners.
const WordingNone = "none"

// Bind declares the flags, with their defaults, on a flag set.
func (o *Controller) Bind(flags *flag.FlagSet) {
	o.Metrics.bind(flags)
	flags.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081", "address of the health endpoints")
	o.bindElection(flags)
	o.Watch.bind(flags)
	o.Gateway.bind(flags)
	flags.IntVar(&o.Workers, "workers", 32, "number of Workspaces reconciled at once")
	flags.Float64Var(&o.QPS, "kube-client-qps", 200, "requests per second to the API server")
	flags.IntVar(&o.Burst, "kube-client-burst", 300, "burst of requests to the API server")
	flags.StringVar(&o.CatalogOverlay, "catalog-overlay", "", "directory with files that add to the catalogue or replace its entries")
	o.Calibration.bind(flags)
	flags.Func("cloud", "cloud to buy machines from: azure, aws or gcp; repeatable; default: all", o.addCloud)
	flags.StringVar(&o.Region, "region", "", "region of the prices; default: the label topology.kubernetes.io/region of the cluster's nodes")
	flags.IntVar(&o.OSDiskGiB, "os-disk-gib", 0,
		"size in GiB of the OS disk of the NodeClass's machines; plans that need more are rejected; 0 means unknown, so "+
			"plans ignore disks")
	flags.BoolVar(&o.LocalDisk, "local-disk-holds-pods", false,
		"the NodeClass stores pods and images on the machines' local disks, for example with instanceStorePolicy RAID0 on "+
			"AWS")
	flags.Func("node-class", "NodeClass to buy with, as group/kind/name; repeatable, the first is the default", o.addNodeClass)
	flags.StringVar(&o.AgentImage, "agent-image", "", "image of modelberth-agent (required)")
	flags.Func("engine-image", "image of an engine, as name=reference; repeatable", o.addEngineImage)
	flags.StringVar(&o.EngineRegistry, "engine-registry", "",
		"registry, with an optional path, to pull the engines' images from, except those set by --engine-image")
	flags.BoolVar(&o.AllowRemoteCode, "allow-remote-code", false,
		"allow models that run code from their repository inside the inference server")
	flags.StringVar(&o.ImagePullPolicy, "image-pull-policy", "", "pull policy of the pods' images: Always, IfNotPresent or Never")
	flags.StringVar(&o.HubEndpoint, "hub-endpoint", "https://huggingface.co", "URL of the Hugging Face-compatible hub")
	flags.BoolVar(&o.DescribeModels, "describe-models", false,
		"query the hub for models that are not in the catalogue, for the commits of weights and for the ranks of "+
			"adapters; if false, the controller never contacts the hub")
	o.bindNetwork(flags)
	o.Weights.bind(flags)
	o.Artifacts.bind(flags)
	flags.Func("weights-host-path", "node directory that inference.weights.hostPath may use, with its subdirectories; repeatable; default: none",
		o.addHostPath)
	flags.Var(&o.RDMA, "rdma-resource",
		"RDMA resource for the pods of a model on several machines, as name or name=count for each machine, for example "+
			"rdma/hca_shared_devices_a; default: none, so plans assume the pod network")
	flags.Var(&o.KVEvents, "kv-events-consumer",
		"pods that may read KV-cache events, as NAMESPACE/LABEL=VALUE[,LABEL=VALUE]; the events contain the token ids of "+
			"prompts; by default, engines publish none")
	o.bindCapacity(flags)
	o.bindDedication(flags)
	o.bindLive(flags)
	o.Cost.bind(flags)
	o.Routers.bind(flags)
}

// bindCapacity declares the flags about the purchase and release of machines.
func (o *Controller) bindCapacity(flags *flag.FlagSet) {
	flags.DurationVar(&o.LaunchDeadline, "launch-deadline", 10*time.Minute,
		"how long gpu-provisioner may take to launch a machine, or Karpenter to create the NodeClaim of a NodePool, "+
			"before the attempt fails; 0 means forever")
	flags.DurationVar(&o.RegistrationDeadline, "registration-deadline", 20*time.Minute,
		"how long a machine may take to become a node before the attempt fails; 0 means forever")
	flags.DurationVar(&o.InitializationDeadline, "initialization-deadline", 30*time.Minute,
		"how long a node may take to advertise all its GPUs before the attempt fails; 0 means forever")
	flags.DurationVar(&o.NodeGrace, "node-grace", 10*time.Minute,
		"how long a node may stay not Ready before its machine is replaced; 0 means forever")
	flags.DurationVar(&o.FailureDeadline, "failure-deadline", 30*time.Minute,
		"how long the cluster may reject pods, or pods may fail permanently, before their machines are released; 0 means "+
			"forever")
	flags.DurationVar(&o.IdleDeadline, "idle-deadline", 6*time.Hour,
		"how long machines may wait for their first ready pod, without download progress, before they are released; "+
			"0 means forever")
	flags.StringVar(&o.CapacityBackend, "capacity-backend", BackendAuto,
		"source of machines: nodeclaim or nodepool (Karpenter), pods (cluster autoscaler or a person adds nodes for pending "+
			"pods), existing (buy nothing), or auto (nodeclaim if the cluster has Karpenter, else existing)")
	flags.BoolVar(&o.StaticNodePools, "static-node-pools", false,
		"with --capacity-backend=nodepool, create static NodePools, which need Karpenter's feature gate StaticCapacity; "+
			"by default, pools are dynamic")
	flags.StringVar(&o.CapacityWording, "capacity-wording", "",
		"rules for the cloud's refusal messages: karpenter-azure, karpenter-aws, gpu-provisioner or none; default: "+
			"depends on the kind of the NodeClass")
	flags.BoolVar(&o.GPUPluginCheck, "gpu-plugin-check", true,
		"before buying, check for a device plugin or GPU operator that tolerates the taint of bought nodes")
	flags.BoolVar(&o.SweepKAITO, "sweep-kaito-nodeclaims", false,
		"delete leftover NodeClaims of KAITO's controller whose Workspace is gone")
}

// bindLive declares the flags for spending, and the ConfigMap that may have them.
func (o *Controller) bindLive(flags *flag.FlagSet) {
	o.Spending.bind(flags)
	flags.Func("settings-config-map", "ConfigMap with flags that can change while the controller runs, as NAMESPACE/NAME: its keys are "+
		strings.Join(LiveFlags(), ", ")+"; default: none, so that these flags never change",
		func(v string) error { return named(v, &o.Settings) })
}

// CheckLive refuses flags that belong to the settings of a ConfigMap.
func (o *Controller) CheckLive(flags *flag.FlagSet) error {
	if o.Settings.Name == "" {
		return nil
	}
	var both []string
	flags.Visit(func(f *flag.Flag) {
		if slices.Contains(LiveFlags(), f.Name) {
			both = append(both, "--"+f.Name)
		}
	})
	if len(both) == 0 {
		return nil
	}
	return fmt.Errorf("%s and --settings-config-map cannot be combined: set them in ConfigMap %s", strings.Join(both, ", "), o.Settings)
}

// bindElection declares the flags for leader election.
func (o *Controller) bindElection(flags *flag.FlagSet) {
	flags.BoolVar(&o.LeaderElect, "leader-elect", false, "elect a leader; required if the controller has several replicas")
	flags.StringVar(&o.LeaderElectionNamespace, "leader-election-namespace", "", "namespace of the Lease; empty means the pod's namespace")
	flags.StringVar(&o.LeaseName, "lease-name", DefaultLeaseName, "name of the Lease; each installation in a namespace needs its own")
}

// Validate reports all errors in the settings at once.
func (o *Controller) Validate() error {
	var problems []error
	if o.AgentImage == "" {
		problems = append(problems, errors.New("--agent-image is required"))
	}
	if len(o.NodeClasses) == 0 && o.mayBuyWithKarpenter() {
		problems = append(problems, errors.New("--node-class is required, as group/kind/name"))
	}
	if o.Workers < 1 {
		problems = append(problems, fmt.Errorf("--workers is %d: it must be at least 1", o.Workers))
	}
	if o.OSDiskGiB < 0 {
		problems = append(problems, fmt.Errorf("--os-disk-gib is %d: it must be at least 0", o.OSDiskGiB))
	}
	if o.QPS <= 0 || o.Burst <= 0 {
		problems = append(problems, fmt.Errorf("--kube-client-qps is %v and --kube-client-burst is %d: both must be above 0", o.QPS, o.Burst))
	}
	if !slices.Contains([]string{"", "Always", "IfNotPresent", "Never"}, o.ImagePullPolicy) {
		problems = append(problems, fmt.Errorf("--image-pull-policy is %q: it must be Always, IfNotPresent or Never", o.ImagePullPolicy))
	}
	if !slices.Contains(CapacityBackends(), o.CapacityBackend) {
		problems = append(problems, fmt.Errorf("--capacity-backend is %q: it must be one of %s",
			o.CapacityBackend, strings.Join(CapacityBackends(), ", ")))
	}
	if o.StaticNodePools && o.CapacityBackend != BackendNodePool {
		problems = append(problems, fmt.Errorf("--static-node-pools needs --capacity-backend=%s", BackendNodePool))
	}
	if !slices.Contains(CapacityWordings(), o.CapacityWording) {
		problems = append(problems, fmt.Errorf("--capacity-wording is %q: it must be one of %s",
			o.CapacityWording, strings.Join(CapacityWordings()[1:], ", ")))
	}
	problems = append(problems, o.Metrics.validate()...)
	problems = append(problems, o.validateDedication()...)
	problems = append(problems, o.validateDeadlines()...)
	problems = append(problems, o.Spending.validate()...)
	problems = append(problems, o.Cost.validate()...)
	problems = append(problems, o.Routers.validate()...)
	problems = append(problems, o.Weights.validate()...)
	problems = append(problems, o.Artifacts.validate()...)
	problems = append(problems, o.Calibration.validate()...)
	problems = append(problems, o.Watch.validate(o.CapacityBackend)...)
	problems = append(problems, o.validateNetwork()...)
	problems = append(problems, o.Gateway.validate()...)
	if !strings.HasPrefix(o.HubEndpoint, "http://") && !strings.HasPrefix(o.HubEndpoint, "https://") {
		problems = append(problems, fmt.Errorf("--hub-endpoint is %q: it must begin with http:// or https://", o.HubEndpoint))
	}
	return errors.Join(problems...)
}

// mayBuyWithKarpenter reports whether machines may be bought with a NodeClass.
func (o *Controller) mayBuyWithKarpenter() bool {
	return o.CapacityBackend != BackendPods && o.CapacityBackend != BackendExisting
}

func (o *Controller) validateDeadlines() []error {
	var problems []error
	for _, deadline := range []struct {
		flag  string
		value time.Duration
	}{
		{"launch-deadline", o.LaunchDeadline},
		{"registration-deadline", o.RegistrationDeadline},
		{"initialization-deadline", o.InitializationDeadline},
		{"node-grace", o.NodeGrace},
		{"failure-deadline", o.FailureDeadline},
		{"idle-deadline", o.IdleDeadline},
	} {
		if deadline.value < 0 {
			problems = append(problems, fmt.Errorf("--%s is %s: it must not be below 0", deadline.flag, deadline.value))
		}
	}
	return problems
}

func (o *Controller) addCloud(value string) error {
	o.Clouds = append(o.Clouds, value)
	return nil
}

func (o *Controller) addHostPath(value string) error {
	if !path.IsAbs(value) || path.Clean(value) != value || value == "/" {
		return fmt.Errorf("%q is not a directory such as /var/lib/models", value)
	}
	o.HostPaths = append(o.HostPaths, value)
	return nil
}

func (o *Controller) addNodeClass(value string) error {
	parts := strings.Split(value, "/")
	if len(parts) != 3 || slices.Contains(parts, "") {
		return fmt.Errorf("%q is not of the form group/kind/name", value)
	}
	o.NodeClasses = append(o.NodeClasses, v1beta1.NodeClassReference{Group: parts[0], Kind: parts[1], Name: parts[2]})
	return nil
}

func (o *Controller) addEngineImage(value string) error {
	name, image, ok := strings.Cut(value, "=")
	if !ok || name == "" || image == "" {
		return fmt.Errorf("%q is not of the form name=reference", value)
	}
	if o.EngineImages == nil {
		o.EngineImages = map[string]string{}
	}
	o.EngineImages[name] = image
	return nil
}
