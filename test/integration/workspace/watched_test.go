// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/privileges"
)

// TestWatchedNamespaces has two installations in one cluster, each in namespaces of its own and with the chart's Roles
// there, beside a Workspace without a controller: neither touches, pays or counts the other's objects.
func TestWatchedNamespaces(t *testing.T) {
	w := enterAudited(t)
	ours, theirs, nobodys := w.namespace(t), w.namespace(t), w.namespace(t)
	first, second := w.watching(t, "modelberth-first", ours), w.watching(t, "modelberth-second", theirs)

	foreign := dearForm(theirs, "theirs")
	w.create(t, foreign)
	second.begin(t)
	w.untilServing(t, foreign)
	unserved := dearForm(nobodys, "nobodys")
	w.create(t, unserved)
	ghosts := []*karpv1.NodeClaim{w.ghost(t, "ghost-of-others", nobodys), w.kaitoGhost(t, "ws0000000001", nobodys)}

	first.begin(t)
	ws := dearForm(ours, "ours")
	w.create(t, ws)
	w.untilServing(t, ws) // its price alone is within the ceiling
	w.checkServing(t, ws)
	first.sweep(t, w.ghost(t, "ghost-of-ours", ours))
	first.sweep(t, w.kaitoGhost(t, "ws0000000002", ours)) // which only the sweeper finds
	for _, ghost := range ghosts {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ghost), ghost); err != nil || ghost.DeletionTimestamp != nil {
			t.Errorf("NodeClaim %s was swept by an installation that does not watch its Workspace's namespace (error %v)", ghost.Name, err)
		}
	}
	w.remove(t, ws)
	w.read(t, foreign)
	if condition(foreign, v1beta1.ConditionReady).Status != metav1.ConditionTrue || w.karpenter.ClaimsEver(foreign.UID) != 1 {
		t.Errorf("the Workspace of the other installation was touched: %s", saying(foreign))
	}
	w.remove(t, foreign)
	w.read(t, unserved)
	if len(unserved.Finalizers)+len(unserved.Status.Conditions) > 0 {
		t.Errorf("a Workspace of a namespace that nobody watches was written to: %s, finalizers %v", saying(unserved), unserved.Finalizers)
	}
	for _, each := range []*installation{first, second} {
		for _, problem := range privileges.Forbidden(each.requests(t)) {
			t.Error(problem)
		}
	}
}

// TestWatchedNamespacesWithEveryBackEnd makes a Workspace serve and lose its node under the Roles of each back end.
// Another watched namespace is deleted, with the controller's Role in it. That stops no other namespace.
func TestWatchedNamespacesWithEveryBackEnd(t *testing.T) {
	w := enterAudited(t)
	for _, backEnd := range []string{options.BackendNodeClaim, options.BackendNodePool, options.BackendPods, options.BackendExisting} {
		t.Run(backEnd, func(t *testing.T) {
			namespace, isExisting := w.namespace(t), backEnd == options.BackendExisting
			i := w.watching(t, "modelberth-"+backEnd, namespace, "capacity.backend="+backEnd, fmt.Sprintf("watchPodsOfNodes=%v", isExisting))
			i.options.CapacityBackend, i.options.Watch.PodsOfNodes = backEnd, isExisting
			i.options.Watch.Namespaces = append(i.options.Watch.Namespaces, "gone")
			i.begin(t)
			l := &lifetime{climber: &climber{world: i.world}, account: i.account, backEnd: backEnd}
			ws := l.formIn(t, namespace, "chat")
			w.create(t, ws)
			w.untilServing(t, ws)
			// The clock stands still otherwise: a machine that a pass never saw leaving would count as not yet shown
			// forever.
			i.clock.Step(2 * acquire.CacheLag)
			l.lose(t, ws)
			w.untilServing(t, ws)
			l.vanish(t, ws)
			for _, problem := range privileges.Forbidden(i.requests(t)) {
				if !strings.Contains(problem, " gone/") {
					t.Error(problem)
				}
			}
		})
	}
}

// dearForm is a Workspace that uses most of the ceiling.
func dearForm(namespace, name string) *v1beta1.Workspace {
	ws := plannerForm(namespace, name)
	ws.Resource.Placement = &v1beta1.PlacementSpec{InstanceTypes: []string{dear}}
	return ws
}

// installation is an installation of the chart with watched namespaces.
type installation struct {
	*account
	options options.Controller
	clock   *testclock.FakeClock
}

// watching makes the account of an installation with a watched namespace.
func (w *world) watching(t *testing.T, release, namespace string, values ...string) *installation {
	t.Helper()
	i := &installation{
		account: w.install(t, release, append(values, "watchNamespaces={"+namespace+"}")...), options: w.options(),
		clock: testclock.NewFakeClock(time.Now()),
	}
	i.options.Watch.Namespaces = []string{namespace}
	i.options.LeaderElect, i.options.LeaderElectionNamespace, i.options.LeaseName = true, i.namespace, release+"-controller"
	i.options.Spending.Cluster = 5 // one of the dear ones
	i.options.SweepKAITO = true
	return i
}

func (i *installation) begin(t *testing.T) {
	t.Helper()
	i.beginWith(t, faults.NewRecorder(), i.clock, i.options)
}

// sweep has the installation look for machines without a Workspace until it lets this one go.
func (i *installation) sweep(t *testing.T, claim *karpv1.NodeClaim) {
	t.Helper()
	eventually(t, claim.Name+" is swept", func() (bool, string) {
		i.clock.Step(6 * time.Minute)
		err := i.client.Get(t.Context(), client.ObjectKeyFromObject(claim), claim)
		return client.IgnoreNotFound(err) == nil && (err != nil || claim.DeletionTimestamp != nil), "it is there"
	})
}

// ghost makes a NodeClaim of this controller for a deleted Workspace.
func (w *world) ghost(t *testing.T, name, namespace string) *karpv1.NodeClaim {
	t.Helper()
	return w.claim(t, name, map[string]string{
		v1beta1.LabelManagedBy: v1beta1.ManagedBy, v1beta1.LabelWorkspaceUID: "uid-of-" + name, v1beta1.LabelMachineOrdinal: "0",
		v1beta1.LabelMachineWorkspaceNamespace: namespace, v1beta1.LabelMachineWorkspaceName: "ghost",
	})
}

// kaitoGhost makes one as KAITO's controller did.
func (w *world) kaitoGhost(t *testing.T, name, namespace string) *karpv1.NodeClaim {
	t.Helper()
	return w.claim(t, name, map[string]string{
		v1beta1.LabelWorkspaceNamespace: namespace, v1beta1.LabelWorkspace: "ghost", karpv1.NodePoolLabelKey: "kaito",
	})
}

func (w *world) claim(t *testing.T, name string, labels map[string]string) *karpv1.NodeClaim {
	t.Helper()
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.azure.com", Kind: "AKSNodeClass", Name: "default"},
			Requirements: []karpv1.NodeSelectorRequirementWithMinValues{instanceTypeIs(dear)},
			ExpireAfter:  karpv1.MustParseNillableDuration(karpv1.Never),
		},
	}
	if err := w.client.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.IgnoreNotFound(w.client.Delete(context.Background(), claim)) })
	return claim
}
