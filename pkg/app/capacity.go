// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/capacity/nodepool"
	"github.com/modelberth/modelberth/pkg/capacity/pods"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/sweep"
	"github.com/modelberth/modelberth/pkg/controllers/workspace"
	"github.com/modelberth/modelberth/pkg/options"
)

// backEnd is how machines are got in this cluster: one of options.CapacityBackends but auto, or absent.
type backEnd string

// absent is what auto comes to where nothing is installed: nodes that exist, until something is.
const absent backEnd = "absent"

// machines get machines, let them go, and keep the books of what they cost.
type machines interface {
	workspace.Provisioner
	ledger.Books
}

// provisioner is who launches machines, as the catalogue calls it; empty where that is not known.
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

// isAgentPool says that gpu-provisioner makes the machines of a node class, each an AKS agent pool.
func isAgentPool(class v1beta1.NodeClassReference) bool {
	return refusal.ProviderOf(class.Group, class.Kind) == refusal.GPUProvisioner
}

// checkNodeClasses sees to it that one kind of provisioner reads all that is asked for: what it reads differs.
func checkNodeClasses(classes []v1beta1.NodeClassReference, chosen backEnd) error {
	isOther := func(class v1beta1.NodeClassReference) bool { return !isAgentPool(class) }
	switch {
	case !slices.ContainsFunc(classes, isAgentPool):
		return nil
	case slices.ContainsFunc(classes, isOther):
		return errors.New("--node-class: KaitoNodeClass is gpu-provisioner's and cannot be mixed with Karpenter's classes: name one kind")
	case chosen == options.BackendNodePool:
		return errors.New("--capacity-backend=nodepool: gpu-provisioner, whose KaitoNodeClass --node-class names, has no pools: choose nodeclaim")
	default:
		return nil
	}
}

// readsNodeClaims says whether NodeClaims are watched.
func (b backEnd) readsNodeClaims() bool { return slices.Contains(b.needs(), nodeClaimKind()) }

// needs are the kinds that the cluster has to serve.
func (b backEnd) needs() []schema.GroupKind {
	switch b {
	case options.BackendNodeClaim:
		return []schema.GroupKind{nodeClaimKind()}
	case options.BackendNodePool:
		return []schema.GroupKind{{Group: nodeClaimKind().Group, Kind: "NodePool"}, nodeClaimKind()}
	default:
		return nil
	}
}

// nodeClaimKind is what Karpenter's back ends need the cluster to serve.
func nodeClaimKind() schema.GroupKind {
	return schema.GroupKind{Group: nodeclaim.GroupVersion().Group, Kind: "NodeClaim"}
}

// cloudsFor are those whose machine types may come: where pods wait for them and nobody says which, those of
// the nodes that are there.
func cloudsFor(ctx context.Context, live client.Reader, asked []string, chosen backEnd) ([]string, error) {
	if chosen != options.BackendPods || len(asked) > 0 {
		return asked, nil
	}
	nodes := &corev1.NodeList{}
	if err := live.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("looking for the cloud of the nodes: %w", err)
	}
	return cloudsOf(nodes.Items), nil
}

// chooseBackEnd probes the cluster for what was asked for, or for what there is.
func chooseBackEnd(config *rest.Config, o options.Controller) (backEnd, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", fmt.Errorf("probing for Karpenter: %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return "", fmt.Errorf("probing for Karpenter: %w", err)
	}
	chosen, err := choose(mapper, o.CapacityBackend)
	if err != nil {
		return "", err
	}
	return chosen, checkNodeClasses(o.NodeClasses, chosen)
}

func choose(mapper meta.RESTMapper, asked string) (backEnd, error) {
	isAuto := asked == "" || asked == options.BackendAuto
	chosen := backEnd(asked)
	if isAuto {
		chosen = options.BackendNodeClaim
	}
	var missing []string
	for _, kind := range chosen.needs() {
		_, err := mapper.RESTMapping(kind, nodeclaim.GroupVersion().Version)
		if err != nil && !meta.IsNoMatchError(err) {
			return "", fmt.Errorf("probing for Karpenter: %w", err)
		}
		if err != nil {
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

// cloudsOf are the clouds that nodes are of, by the names that their controller managers give their machines.
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

// site is where a back end works: a client that reads what the watches saw and writes, one that asks the API
// server, and the time.
type site struct {
	mgr    manager.Manager
	cached client.Client
	live   client.Reader
	clock  clock.PassiveClock
}

func siteOf(mgr manager.Manager, hooks Hooks) site {
	out := site{mgr: mgr, cached: mgr.GetClient(), live: mgr.GetAPIReader(), clock: clock.RealClock{}}
	if hooks.WrapClient != nil {
		out.cached = hooks.WrapClient(out.cached)
	}
	if hooks.Clock != nil {
		out.clock = hooks.Clock
	}
	return out
}

// newBackEnd returns what gets machines, and what tells of them. Without a provisioner the controller runs all
// the same: it plans, and says what is missing.
func newBackEnd(ctx context.Context, at site, o options.Controller, chosen backEnd) (machines, []workspace.News, error) {
	switch chosen {
	case options.BackendNodeClaim:
		return nodeClaims(at, o)
	case options.BackendNodePool:
		return nodePools(at, o)
	case options.BackendPods:
		return waitingPods(ctx, at)
	case options.BackendExisting:
		return capacity.Absent{
			Why: "this installation uses only nodes that exist", Fix: "add a node that will do, or have the administrator set --capacity-backend",
		}, nil, nil
	default:
		return nothing(at)
	}
}

func nodeClaims(at site, o options.Controller) (machines, []workspace.News, error) {
	claims := nodeclaim.New(at.cached, at.live, o.NodeClasses[0])
	return claims, []workspace.News{{Object: nodeclaim.Object()}}, at.sweep(o, claims, claims)
}

func nodePools(at site, o options.Controller) (machines, []workspace.News, error) {
	claims := nodeclaim.New(at.cached, at.live, o.NodeClasses[0])
	var pools machines = nodepool.New(at.cached, at.live, claims)
	if o.StaticNodePools {
		pools = nodepool.NewStatic(at.cached, at.live, claims)
	}
	return pools, []workspace.News{{Object: nodeclaim.Object()}, {Object: nodepool.Object()}}, at.sweep(o, pools, claims)
}

// sweep has what is held swept.
func (at site) sweep(o options.Controller, held sweep.Machines, claims *nodeclaim.Provisioner) error {
	sweeper := &sweep.Sweeper{Cached: at.cached, Live: at.live, Machines: held, Clock: clock.RealClock{}}
	if o.SweepKAITO {
		sweeper.Strays = nodeclaim.KAITO{Provisioner: claims}
	}
	if err := at.mgr.Add(sweeper); err != nil {
		return fmt.Errorf("adding the sweeper: %w", err)
	}
	return nil
}

// waitingPods need no sweeper: what asks for a machine belongs to its Workspace, and goes with it.
func waitingPods(ctx context.Context, at site) (machines, []workspace.News, error) {
	if err := pods.IndexEvents(ctx, at.mgr.GetFieldIndexer()); err != nil {
		return nil, nil, err
	}
	waiting := pods.New(at.cached, at.live, at.clock)
	return waiting, []workspace.News{
		{Object: &corev1.Pod{}, WorkspaceOf: func(_ context.Context, pod client.Object) types.NamespacedName {
			return types.NamespacedName{Namespace: pod.GetNamespace(), Name: pod.GetLabels()[v1beta1.LabelWorkspace]}
		}},
		{Object: &corev1.Event{}, WorkspaceOf: waiting.WorkspaceOf},
	}, nil
}

// nothing starts the process anew once Karpenter is installed.
func nothing(at site) (machines, []workspace.News, error) {
	watch := &installWatch{mapper: at.mgr.GetRESTMapper(), kind: nodeClaimKind()}
	if err := at.mgr.Add(watch); err != nil {
		return nil, nil, fmt.Errorf("watching for Karpenter: %w", err)
	}
	return capacity.Absent{
		Why: "the CustomResourceDefinition nodeclaims.karpenter.sh is not installed in this cluster",
		Fix: "install Karpenter with a provider for your cloud, or have the administrator set --capacity-backend=pods",
	}, nil, nil
}
