// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool_test

import (
	"context"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/capacity/nodepool"
	"github.com/modelberth/modelberth/pkg/events"
)

var update = flag.Bool("update", false, "write the golden files")

var (
	owner = capacity.Owner{Namespace: "team-a", Name: "chat", UID: "11111111-2222-3333-4444-555555555555"}
	class = v1beta1.NodeClassReference{Group: "eks.amazonaws.com", Kind: "NodeClass", Name: "default"}
	start = metav1.NewTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
)

func request(count int, instanceType string) capacity.Request {
	return capacity.Request{
		Owner: owner, Attempt: 1, InstanceType: instanceType, Count: count, GPUResource: "nvidia.com/gpu", GPUs: 4,
		DiskGiB: 60, CapacityType: v1beta1.CapacityOnDemand, Labels: map[string]string{"apps": "chat"}, HourlyPrice: 5.672,
	}
}

// pair requests two machines in one zone.
func pair(instanceType string) capacity.Request {
	r := request(2, instanceType)
	r.OneZone = true
	return r
}

func newClient(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, nodeclaim.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Event{}, events.SubjectIndex, events.Subject).Build()
}

// provisioner returns a Provisioner of static or dynamic pools.
func provisioner(cached client.Client, live client.Reader, isStatic bool) *nodepool.Provisioner {
	claims := nodeclaim.New(cached, live, class)
	if isStatic {
		return nodepool.NewStatic(cached, live, claims)
	}
	return nodepool.New(cached, live, claims)
}

// made returns the pool for a request.
func made(t *testing.T, isStatic bool, req capacity.Request) *karpv1.NodePool {
	t.Helper()
	c := newClient(t)
	if _, err := provisioner(c, c, isStatic).Ensure(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	pool := &karpv1.NodePool{}
	if err := c.Get(t.Context(), types.NamespacedName{Name: nodepool.Name(req.Owner, req.Attempt)}, pool); err != nil {
		t.Fatal(err)
	}
	pool.ResourceVersion, pool.UID, pool.CreationTimestamp = "", "pool", start
	return pool
}

// claimOf returns a claim as Karpenter creates it for a pool, that many seconds later.
func claimOf(pool *karpv1.NodePool, name string, seconds int, change ...func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
	claim := pool.Spec.Template.ToNodeClaim()
	claim.Name, claim.UID = pool.Name+"-"+name, types.UID(name)
	claim.CreationTimestamp = metav1.NewTime(start.Add(time.Duration(seconds) * time.Second))
	labels := map[string]string{karpv1.NodePoolLabelKey: pool.Name}
	maps.Copy(labels, claim.Labels)
	claim.Labels = labels
	for _, c := range change {
		c(claim)
	}
	return claim
}

func deleting(object client.Object) {
	now := start
	object.SetDeletionTimestamp(&now)
	object.SetFinalizers([]string{"karpenter.sh/termination"})
}

func leaving(claim *karpv1.NodeClaim) { deleting(claim) }

func launchedIn(zone string) func(*karpv1.NodeClaim) {
	return func(claim *karpv1.NodeClaim) {
		claim.Labels[corev1.LabelTopologyZone] = zone
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
	}
}

// TestPools compares whole pools with golden files.
func TestPools(t *testing.T) {
	zoned := pair("p4d.24xlarge")
	zoned.Zones = []string{"us-east-1a"}
	dedicated := request(1, "g6.12xlarge")
	dedicated.Dedicated = true
	tests := []struct {
		golden   string
		isStatic bool
		request  capacity.Request
	}{
		{"static", true, request(1, "g6.12xlarge")},
		{"dynamic", false, request(1, "g6.12xlarge")},
		{"dedicated-static", true, dedicated},
		{"dedicated-dynamic", false, dedicated},
		{"group-static", true, zoned},
		{"group-dynamic", false, zoned},
		{"group-first", false, pair("p4d.24xlarge")},
	}
	for _, test := range tests {
		t.Run(test.golden, func(t *testing.T) {
			pool := made(t, test.isStatic, test.request)
			pool.UID, pool.CreationTimestamp = "", metav1.Time{}
			data, err := yaml.Marshal(pool)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", test.golden+".yaml")
			if *update {
				if err := os.WriteFile(file, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(data)); diff != "" {
				t.Errorf("%s (-want +got), -update writes it anew:\n%s", file, diff)
			}
		})
	}
}

// seat is the reported name of a machine.
type seat struct {
	Name        string
	UID         types.UID
	Replacement bool
	Deleting    bool
}

func TestObserve(t *testing.T) {
	pool := made(t, true, request(2, "A"))
	name := func(ordinal string) string { return pool.Name + "-" + ordinal }
	first, second := capacity.Created{Name: name("0"), UID: "a"}, capacity.Created{Name: name("1"), UID: "b"}
	lost := capacity.Created{Name: name("0"), UID: "a", LostAt: time.Now()}
	tests := []struct {
		reason  string
		objects []client.Object
		known   []capacity.Created
		want    []seat
	}{
		{"nothing is held", nil, nil, nil},
		{"no claim has been made", []client.Object{pool}, nil, []seat{{Name: name("0")}, {Name: name("1")}}},
		{
			"the first claim takes the first name",
			[]client.Object{pool, claimOf(pool, "a", 1)},
			nil,
			[]seat{{Name: name("0"), UID: "a"}, {Name: name("1")}},
		},
		{
			"claims are in the order of their age",
			[]client.Object{pool, claimOf(pool, "a", 2), claimOf(pool, "b", 1)},
			nil,
			[]seat{{Name: name("0"), UID: "b"}, {Name: name("1"), UID: "a"}},
		},
		{
			"those that are known keep their names",
			[]client.Object{pool, claimOf(pool, "a", 2), claimOf(pool, "b", 1)},
			[]capacity.Created{first, second},
			[]seat{{Name: name("0"), UID: "a"}, {Name: name("1"), UID: "b"}},
		},
		{
			"a claim in the place of one that went is not that machine",
			[]client.Object{pool, claimOf(pool, "b", 1), claimOf(pool, "c", 3)},
			[]capacity.Created{first, second},
			[]seat{{Name: name("1"), UID: "b"}, {Name: pool.Name + "-c", UID: "c", Replacement: true}},
		},
		{
			"one on its way out keeps its name",
			[]client.Object{pool, claimOf(pool, "a", 1, leaving), claimOf(pool, "b", 1), claimOf(pool, "c", 3)},
			[]capacity.Created{first, second},
			[]seat{
				{Name: name("0"), UID: "a", Deleting: true},
				{Name: name("1"), UID: "b"},
				{Name: pool.Name + "-c", UID: "c", Replacement: true},
			},
		},
		{
			"a lost machine has its name until it is gone",
			[]client.Object{pool, claimOf(pool, "a", 1, leaving), claimOf(pool, "b", 1)},
			[]capacity.Created{lost, second},
			[]seat{{Name: name("0")}, {Name: name("0"), UID: "a", Deleting: true}, {Name: name("1"), UID: "b"}},
		},
		{
			"its successor has the name as well",
			[]client.Object{pool, claimOf(pool, "a", 1, leaving), claimOf(pool, "b", 1), claimOf(pool, "c", 3)},
			[]capacity.Created{lost, second},
			[]seat{{Name: name("0"), UID: "c"}, {Name: name("0"), UID: "a", Deleting: true}, {Name: name("1"), UID: "b"}},
		},
		{
			"and has it alone afterwards",
			[]client.Object{pool, claimOf(pool, "b", 1), claimOf(pool, "c", 3)},
			[]capacity.Created{lost, second},
			[]seat{{Name: name("0"), UID: "c"}, {Name: name("1"), UID: "b"}},
		},
		{
			"the second is seen after the first is known",
			[]client.Object{pool, claimOf(pool, "b", 0), claimOf(pool, "a", 1)},
			[]capacity.Created{first},
			[]seat{{Name: name("0"), UID: "a"}, {Name: name("1"), UID: "b"}},
		},
		{
			"a claim whose pool is gone is known still",
			[]client.Object{claimOf(pool, "a", 1, leaving)},
			[]capacity.Created{first},
			[]seat{{Name: name("0"), UID: "a", Deleting: true}},
		},
		{
			"nor does what nobody knows get lost",
			[]client.Object{claimOf(pool, "x", 1)},
			[]capacity.Created{first},
			[]seat{{Name: pool.Name + "-x", UID: "x"}},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			c := newClient(t, test.objects...)
			machines, err := provisioner(c, c, true).Observe(t.Context(), owner, test.known, "nvidia.com/gpu")
			if err != nil {
				t.Fatal(err)
			}
			var got []seat
			var standing []string
			for _, machine := range machines {
				got = append(got, seat{machine.Name, machine.UID, machine.Replacement, machine.Deleting})
				if machine.InstanceType != "A" || machine.CapacityType != v1beta1.CapacityOnDemand {
					t.Errorf("%s is %s %s, want A on demand", machine.Name, machine.InstanceType, machine.CapacityType)
				}
				if !machine.Deleting {
					standing = append(standing, machine.Name)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			held, err := provisioner(newClient(t), c, true).Held(t.Context(), owner, test.known)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(standing, capacity.MachineNames(held)); diff != "" {
				t.Errorf("held as the API server has it (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhyThereIsNoClaim(t *testing.T) {
	ready := func(pool *karpv1.NodePool) {
		for _, condition := range []string{
			karpv1.ConditionTypeValidationSucceeded, karpv1.ConditionTypeNodeClassReady, karpv1.ConditionTypeNodeRegistrationHealthy,
		} {
			pool.StatusConditions().SetTrue(condition)
		}
	}
	tests := []struct {
		reason   string
		isStatic bool
		change   func(*karpv1.NodePool)
		said     string
		message  string
	}{
		{"nobody has looked at it", false, func(*karpv1.NodePool) {}, "NoNodeClaim", "Karpenter has not created a NodeClaim for NodePool NAME yet; the NodePool is not ready"},
		{"it waits for pods", false, ready, "NoNodeClaim", "Karpenter has not created a NodeClaim for NodePool NAME yet"},
		{
			"the gate may be off", true, ready, "NoNodeClaim",
			"Karpenter has not created a NodeClaim for NodePool NAME yet; if this lasts, turn on Karpenter's feature gate StaticCapacity",
		},
		{
			"its class is not ready", true, func(pool *karpv1.NodePool) {
				pool.StatusConditions().SetFalse(karpv1.ConditionTypeNodeClassReady, "NodeClassNotReady", "no subnet")
			}, "NodePoolNotReady", "NodePool NAME is not ready: NodeClassReady: no subnet",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			pool := made(t, test.isStatic, request(1, "A"))
			test.change(pool)
			c := newClient(t, pool)
			machines, err := provisioner(c, c, test.isStatic).Observe(t.Context(), owner, nil, "nvidia.com/gpu")
			if err != nil || len(machines) != 1 {
				t.Fatalf("machines %v, error %v", machines, err)
			}
			said := machines[0].Words.Launched
			if got := strings.ReplaceAll(said.Message, pool.Name, "NAME"); said.Reason != test.said || got != test.message {
				t.Errorf("%s: %q, want %s: %q", said.Reason, got, test.said, test.message)
			}
			if machines[0].CreatedAt.IsZero() || machines[0].HourlyPrice != 5.672 {
				t.Errorf("machine %+v: want its age and price", machines[0])
			}
		})
	}
}

func TestEnsure(t *testing.T) {
	single, both := made(t, false, request(1, "A")), made(t, false, pair("A"))
	next := request(1, "B")
	next.Attempt = 2
	zoned := pair("A")
	zoned.Zones = []string{"z2"}
	averse := pair("A")
	averse.AvoidZones = []string{"z1"}
	existed := request(1, "A")
	existed.Existed = []string{single.Name + "-0"}
	replaced := request(2, "A")
	replaced.Existed, replaced.Replaced = []string{single.Name + "-1"}, []types.UID{"a"}
	double := made(t, false, request(2, "A"))
	tests := []struct {
		reason   string
		live     []client.Object
		cached   []client.Object
		request  capacity.Request
		created  []string
		released []string
		// want is the result: each pool with its size and zone, and each claim.
		want []string
	}{
		{reason: "nothing is held", request: request(1, "A"), created: []string{single.Name + "-0"}, want: []string{single.Name + " 1"}},
		{
			reason: "all is held", request: request(1, "A"), live: []client.Object{single}, cached: []client.Object{single},
			want: []string{single.Name + " 1"},
		},
		{
			reason: "the cache does not show the pool yet", request: request(1, "A"), live: []client.Object{single},
			want: []string{single.Name + " 1"},
		},
		{
			reason: "a claim that is made again is Karpenter's", request: request(1, "A"),
			live:   []client.Object{single, claimOf(single, "a", 1, leaving), claimOf(single, "b", 2)},
			cached: []client.Object{single, claimOf(single, "a", 1, leaving), claimOf(single, "b", 2)},
			want:   []string{single.Name + " 1", single.Name + "-a", single.Name + "-b"},
		},
		{
			reason: "a pool that was there once is not made again", request: existed, want: nil,
		},
		{
			reason: "the pool of an earlier attempt goes with its claims, and no other comes before it is gone", request: next,
			live: []client.Object{single, claimOf(single, "a", 1)}, released: []string{single.Name, single.Name + "-a"},
		},
		{
			reason: "claims of a pool that is gone are waited for", request: next,
			live: []client.Object{claimOf(single, "a", 1, leaving)}, want: []string{single.Name + "-a"},
		},
		{
			reason: "a lost machine goes alone, and its pool stays", request: replaced,
			live:     []client.Object{double, claimOf(double, "a", 1), claimOf(double, "b", 1)},
			cached:   []client.Object{double, claimOf(double, "a", 1), claimOf(double, "b", 1)},
			released: []string{double.Name + "-a"}, want: []string{double.Name + " 2", double.Name + "-b"},
		},
		{
			reason: "nothing is done about it while it is on its way out", request: replaced,
			live:   []client.Object{double, claimOf(double, "a", 1, leaving), claimOf(double, "b", 1)},
			cached: []client.Object{double, claimOf(double, "a", 1, leaving), claimOf(double, "b", 1)},
			want:   []string{double.Name + " 2", double.Name + "-a", double.Name + "-b"},
		},
		{
			reason: "of a group one goes first", request: pair("A"), created: []string{both.Name + "-0"}, want: []string{both.Name + " 1"},
		},
		{
			reason: "the others wait until it is launched", request: pair("A"), live: []client.Object{both, claimOf(both, "a", 1)},
			want: []string{both.Name + " 1", both.Name + "-a"},
		},
		{
			reason: "and follow into its zone", request: pair("A"), live: []client.Object{both, claimOf(both, "a", 1, launchedIn("z1"))},
			created: []string{both.Name + "-1"}, want: []string{both.Name + " 2 z1", both.Name + "-a"},
		},
		{
			reason: "also where that was to be avoided", request: averse, live: []client.Object{both, claimOf(both, "a", 1, launchedIn("z1"))},
			created: []string{both.Name + "-1"}, want: []string{both.Name + " 2 z1", both.Name + "-a"},
		},
		{
			reason: "where zones are named, one that is wanted", request: zoned, created: []string{both.Name + "-0", both.Name + "-1"},
			want: []string{both.Name + " 2 z2"},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			live := newClient(t, test.live...)
			outcome, err := provisioner(behind(t, live, test.cached...), live, false).Ensure(t.Context(), test.request)
			if err != nil {
				t.Fatal(err)
			}
			var created []string
			for _, machine := range outcome.Created {
				created = append(created, machine.Name)
			}
			if diff := cmp.Diff(test.created, created); diff != "" {
				t.Errorf("created (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.released, outcome.Released); diff != "" {
				t.Errorf("released (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.want, everything(t, live)); diff != "" {
				t.Errorf("held afterwards (-want +got):\n%s", diff)
			}
		})
	}
}

// behind returns a client that writes to the API server and lists from a stale cache.
func behind(t *testing.T, live client.WithWatch, cached ...client.Object) client.Client {
	t.Helper()
	stale := newClient(t, cached...)
	return interceptor.NewClient(live, interceptor.Funcs{
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return stale.List(ctx, list, options...)
		},
	})
}

// everything returns each pool with its size and zone, and each claim.
func everything(t *testing.T, c client.Reader) []string {
	t.Helper()
	pools, claims := &karpv1.NodePoolList{}, &karpv1.NodeClaimList{}
	if err := errors.Join(c.List(t.Context(), pools), c.List(t.Context(), claims)); err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range pools.Items {
		limit := pools.Items[i].Spec.Limits["nodes"]
		text := pools.Items[i].Name + " " + limit.String()
		for _, requirement := range pools.Items[i].Spec.Template.Spec.Requirements {
			if requirement.Key == corev1.LabelTopologyZone {
				text += " " + strings.Join(requirement.Values, ",")
			}
		}
		out = append(out, text)
	}
	for i := range claims.Items {
		out = append(out, claims.Items[i].Name)
	}
	slices.Sort(out)
	return out
}

// TestPodsComeFirst: a pool without pods would wait for them unnoticed.
func TestPodsComeFirst(t *testing.T) {
	for _, isStatic := range []bool{false, true} {
		c, asked := newClient(t), 0
		req := request(1, "A")
		req.MakePods = func(context.Context) error {
			asked++
			if got := everything(t, c); len(got) > 0 {
				t.Errorf("static %v: there before the pods: %v", isStatic, got)
			}
			return errors.New("no pods")
		}
		_, err := provisioner(c, c, isStatic).Ensure(t.Context(), req)
		if isStatic && (err != nil || asked > 0) || !isStatic && (err == nil || asked != 1 || len(everything(t, c)) > 0) {
			t.Errorf("static %v: pods made %d times, error %v, held %v", isStatic, asked, err, everything(t, c))
		}
	}
}

func TestEnsureErrors(t *testing.T) {
	foreign := made(t, true, request(1, "A"))
	foreign.Labels = nil
	failing := func(err error) interceptor.Funcs {
		return interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return err }}
	}
	confirm := request(1, "A")
	confirm.Confirm = func(context.Context) error { return errors.New("not now") }
	tests := []struct {
		reason  string
		live    []client.Object
		funcs   interceptor.Funcs
		request capacity.Request
		want    string
	}{
		{
			"the name is somebody else's",
			[]client.Object{foreign},
			interceptor.Funcs{},
			request(1, "A"),
			`NodePool "` + foreign.Name + `" exists and has another owner; delete it, or create the Workspace under another name`,
		},
		{
			"the pools of this cluster have no replicas", nil,
			failing(apierrors.NewBadRequest(`strict decoding error: unknown field "spec.replicas"`)), request(1, "A"),
			"cannot buy machines: NodePools in this cluster do not support spec.replicas: install Karpenter 1.8 or later, or remove --static-node-pools",
		},
		{"it is asked before, and nothing is made", nil, interceptor.Funcs{}, confirm, "not now"},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			live := newClient(t, test.live...)
			_, err := provisioner(interceptor.NewClient(live, test.funcs), live, true).Ensure(t.Context(), test.request)
			if err == nil || err.Error() != test.want {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if got := everything(t, live); len(got) != len(test.live) {
				t.Errorf("held afterwards: %v", got)
			}
		})
	}
}

func TestRelease(t *testing.T) {
	pool := made(t, false, request(1, "A"))
	other := made(t, false, request(1, "A"))
	other.Name, other.Labels = "others", map[string]string{v1beta1.LabelWorkspaceUID: "someone-else"}
	live := newClient(t, pool, claimOf(pool, "a", 1, func(c *karpv1.NodeClaim) { c.Finalizers = []string{"karpenter.sh/termination"} }), other)
	pools := provisioner(behind(t, live), live, false)
	left, err := pools.Release(t.Context(), owner)
	if diff := cmp.Diff([]string{pool.Name, pool.Name + "-a"}, left); diff != "" || err != nil {
		t.Errorf("first, with an empty cache that proves nothing: error %v (-want +got):\n%s", err, diff)
	}
	pools = provisioner(live, live, false)
	left, err = pools.Release(t.Context(), owner)
	if diff := cmp.Diff([]string{pool.Name + "-a"}, left); diff != "" || err != nil {
		t.Errorf("the claim is on its way out: error %v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff([]string{pool.Name + "-a", "others 1"}, everything(t, live)); diff != "" {
		t.Errorf("held afterwards (-want +got):\n%s", diff)
	}
}

func TestBooks(t *testing.T) {
	pool := made(t, false, request(2, "A"))
	live := newClient(t, pool, claimOf(pool, "a", 1, launchedIn("z1")))
	pools := provisioner(live, live, false)
	claims := &karpv1.NodeClaimList{}
	if err := live.List(t.Context(), claims); err != nil {
		t.Fatal(err)
	}
	const onDemand = v1beta1.CapacityOnDemand
	want := []capacity.MachineCost{
		{
			Owner: owner, Machine: pool.Name + "-0", UID: "a", InstanceType: "A", HourlyPrice: 5.672, CapacityType: onDemand, Launched: true,
			LaunchedAt: claims.Items[0].StatusConditions().Get(karpv1.ConditionTypeLaunched).LastTransitionTime.Time,
		},
		// Karpenter may buy this machine at any time.
		{Owner: owner, Machine: pool.Name + "-1", InstanceType: "A", HourlyPrice: 5.672, CapacityType: onDemand},
	}
	for _, read := range []func(context.Context) ([]capacity.MachineCost, error){pools.MachineCosts, pools.LiveMachineCosts} {
		got, err := read(t.Context())
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("error %v (-want +got):\n%s", err, diff)
		}
	}
	owners, err := pools.Owners(t.Context(), "team-a", "chat")
	if diff := cmp.Diff([]capacity.Owner{owner}, owners); diff != "" || err != nil {
		t.Errorf("owners: error %v (-want +got):\n%s", err, diff)
	}
	names, err := pools.Names(owner, 1, 2)
	if diff := cmp.Diff([]string{want[0].Machine, want[1].Machine}, names); diff != "" || err != nil {
		t.Errorf("names: error %v (-want +got):\n%s", err, diff)
	}
	events, err := pools.Events(t.Context(), []types.UID{""})
	if err != nil || len(events) > 0 {
		t.Errorf("a machine without a claim has events %v, error %v", events, err)
	}
}

func TestName(t *testing.T) {
	legal := regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	seen := map[string]bool{}
	for _, workspace := range []string{"a", "chat", strings.Repeat("a", 16) + "-b", strings.Repeat("very-", 10) + "x"} {
		for attempt := range int32(5) {
			o := owner
			o.Name = workspace
			name := nodepool.Name(o, attempt)
			if len(name)+len("-abcde") > 34 || !legal.MatchString(name) || seen[name] {
				t.Errorf("name %q of workspace %q comes twice, or makes names of claims that no VM can have", name, workspace)
			}
			seen[name] = true
		}
	}
}

// TestKeep: the machines of another serving attempt are not released, and do not delay the creation of others.
func TestKeep(t *testing.T) {
	old := made(t, true, request(1, "A"))
	later := request(1, "B")
	later.Attempt, later.Keep = 2, []string{old.Name + "-0"}
	live := newClient(t, old, claimOf(old, "a", 1))
	static := nodepool.NewStatic(live, live, nodeclaim.New(live, live, class))
	outcome, err := static.Ensure(t.Context(), later)
	next := nodepool.Name(owner, 2)
	if want := (capacity.Outcome{Created: []capacity.Created{{Name: next + "-0"}}}); err != nil || !cmp.Equal(want, outcome) {
		t.Errorf("asked for %+v, error %v; want %+v", outcome, err, want)
	}
	left, err := static.ReleaseBut(t.Context(), owner, []string{next + "-0"})
	if diff := cmp.Diff([]string{old.Name, old.Name + "-a"}, left); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff([]string{next + " 1"}, everything(t, live)); diff != "" {
		t.Errorf("held afterwards (-want +got):\n%s", diff)
	}
}

// TestHolders expects the owners of pools, and of machines without a pool. The parked pool of claims on Azure has no
// owner.
func TestHolders(t *testing.T) {
	waits, late := request(1, "p4d.24xlarge"), request(1, "p4d.24xlarge")
	waits.Owner.UID, late.Owner.UID = "waits", "late"
	c := newClient(t, made(t, false, waits), claimOf(made(t, false, late), "a", 1))
	azure := v1beta1.NodeClassReference{Group: "karpenter.azure.com", Kind: "AKSNodeClass", Name: "default"}
	if _, err := nodeclaim.New(c, c, azure).Ensure(t.Context(), request(1, "p4d.24xlarge")); err != nil { // its own claim
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), types.NamespacedName{Name: "modelberth-default"}, &karpv1.NodePool{}); err != nil {
		t.Fatal(err)
	}
	got, err := provisioner(c, c, false).Holders(t.Context())
	if diff := cmp.Diff([]capacity.Owner{late.Owner, waits.Owner}, got); err != nil || diff != "" {
		t.Errorf("error %v, (-want +got):\n%s", err, diff)
	}
}
