// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaim_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
)

var (
	owner = capacity.Owner{Namespace: "team-a", Name: "chat", UID: "11111111-2222-3333-4444-555555555555"}
	class = v1beta1.NodeClassReference{Group: "karpenter.azure.com", Kind: "AKSNodeClass", Name: "default"}
)

func request(count int, instanceType string) capacity.Request {
	return capacity.Request{
		Owner: owner, Attempt: 1, InstanceType: instanceType, Count: count, GPUResource: "nvidia.com/gpu", GPUs: 1,
		DiskGiB: 60, CapacityType: v1beta1.CapacityOnDemand, Labels: map[string]string{"apps": "chat"},
	}
}

// held returns an existing claim of the back end.
func held(ordinal, instanceType string, change ...func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: nodeclaim.Name(owner, 1, int(ordinal[0]-'0')), UID: "held",
			Labels: map[string]string{v1beta1.LabelWorkspaceUID: string(owner.UID), v1beta1.LabelMachineOrdinal: ordinal},
		},
		Spec: karpv1.NodeClaimSpec{
			Requirements: []karpv1.NodeSelectorRequirementWithMinValues{
				{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{instanceType}},
				{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"on-demand"}},
			},
			NodeClassRef: &karpv1.NodeClassReference{Group: class.Group, Kind: class.Kind, Name: class.Name},
		},
	}
	for _, c := range change {
		c(claim)
	}
	return claim
}

func deleting(claim *karpv1.NodeClaim) {
	now := metav1.NewTime(time.Unix(1, 0))
	claim.DeletionTimestamp = &now
	claim.Finalizers = []string{"karpenter.sh/termination"}
}

func inZone(claim *karpv1.NodeClaim)      { claim.Labels[corev1.LabelTopologyZone] = "eastus-1" }
func inOtherZone(claim *karpv1.NodeClaim) { claim.Labels[corev1.LabelTopologyZone] = "eastus-3" }
func launched(claim *karpv1.NodeClaim) {
	claim.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
}

// oneZone requests two machines of type A in one zone.
func oneZone() capacity.Request {
	r := request(2, "A")
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
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func names(t *testing.T, c client.Reader) []string {
	t.Helper()
	claims := &karpv1.NodeClaimList{}
	if err := c.List(t.Context(), claims); err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range claims.Items {
		if claims.Items[i].DeletionTimestamp.IsZero() {
			out = append(out, claims.Items[i].Name)
		}
	}
	slices.Sort(out)
	return out
}

func TestEnsure(t *testing.T) {
	first, second := nodeclaim.Name(owner, 1, 0), nodeclaim.Name(owner, 1, 1)
	foreign := held("0", "A", func(c *karpv1.NodeClaim) {
		c.Name = first
		c.Labels = nil
	})
	tests := []struct {
		reason  string
		live    []client.Object
		cached  []client.Object
		request capacity.Request
		created []string
		names   []string
		zones   []string
		err     any
	}{
		{
			reason: "nothing is held: every machine is asked for", request: request(2, "A"),
			created: []string{first, second}, names: sorted(first, second),
		},
		{
			reason: "everything is held: nothing is done", request: request(1, "A"),
			live: []client.Object{held("0", "A")}, cached: []client.Object{held("0", "A")}, names: []string{first},
		},
		{
			reason: "the cache lags behind: the live list shows what is held", request: request(1, "A"),
			live: []client.Object{held("0", "A")}, names: []string{first},
		},
		{
			reason: "one of two is missing: only that one is asked for", request: request(2, "A"),
			live: []client.Object{held("0", "A")}, cached: []client.Object{held("0", "A")},
			created: []string{second}, names: sorted(first, second),
		},
		{
			reason:  "another machine type is held: it is let go, and nothing is asked for before it is gone",
			request: request(1, "B"), live: []client.Object{held("0", "A")}, cached: []client.Object{held("0", "A")},
		},
		{
			reason:  "the machine is paid for in another way than asked: it is let go",
			request: func() capacity.Request { r := request(1, "A"); r.CapacityType = v1beta1.CapacitySpot; return r }(),
			live:    []client.Object{held("0", "A")}, cached: []client.Object{held("0", "A")},
		},
		{
			reason:  "the machine is in another zone than asked: it is let go",
			request: func() capacity.Request { r := request(1, "A"); r.Zones = []string{"eastus-3"}; return r }(),
			live:    []client.Object{held("0", "A", inZone)}, cached: []client.Object{held("0", "A", inZone)},
		},
		{
			reason: "a machine is on its way out: nothing is asked for meanwhile", request: request(1, "A"),
			live: []client.Object{held("0", "A", deleting)}, cached: []client.Object{held("0", "A", deleting)},
		},
		{
			reason: "more machines than asked for: the last one is let go", request: request(1, "A"),
			live:   []client.Object{held("0", "A"), held("1", "A")},
			cached: []client.Object{held("0", "A"), held("1", "A")}, names: []string{first},
		},
		{
			reason:  "the machine is of another attempt: it is let go",
			request: func() capacity.Request { r := request(1, "A"); r.Attempt = 2; return r }(),
			live:    []client.Object{held("0", "A")}, cached: []client.Object{held("0", "A")},
		},
		{
			reason:  "a machine of this attempt was there and is gone: it is not asked for again",
			request: func() capacity.Request { r := request(2, "A"); r.Existed = []string{first}; return r }(),
			created: []string{second}, names: []string{second},
		},
		{
			reason: "machines for one zone: one goes first", request: oneZone(),
			created: []string{first}, names: []string{first},
		},
		{
			reason:  "the first was refused and is gone: no other one goes first before the attempt has ended",
			request: func() capacity.Request { r := oneZone(); r.Existed = []string{first}; return r }(),
		},
		{
			reason: "the first is not launched yet: nothing is asked for meanwhile", request: oneZone(),
			live: []client.Object{held("0", "A")}, cached: []client.Object{held("0", "A")}, names: []string{first},
		},
		{
			reason: "the first is launched: the others follow into its zone", request: oneZone(),
			live: []client.Object{held("0", "A", inZone)}, cached: []client.Object{held("0", "A", inZone)},
			created: []string{second}, names: sorted(first, second), zones: []string{"eastus-1"},
		},
		{
			reason: "the first is launched where there are no zones: the others follow", request: oneZone(),
			live: []client.Object{held("0", "A", launched)}, cached: []client.Object{held("0", "A", launched)},
			created: []string{second}, names: sorted(first, second),
		},
		{
			reason: "the second was launched first: the zone is its", request: oneZone(),
			live: []client.Object{held("1", "A", inZone)}, cached: []client.Object{held("1", "A", inZone)},
			created: []string{first}, names: sorted(first, second), zones: []string{"eastus-1"},
		},
		{
			reason: "a zone is avoided: the first may come from any other", request: oneZoneBut("eastus-2"),
			created: []string{first}, names: []string{first}, zones: []string{"NotIn eastus-2"},
		},
		{
			reason: "the first is launched in spite of that: the others follow into its zone", request: oneZoneBut("eastus-1"),
			live: []client.Object{held("0", "A", inZone)}, cached: []client.Object{held("0", "A", inZone)},
			created: []string{second}, names: sorted(first, second), zones: []string{"eastus-1"},
		},
		{
			reason:  "only one zone is allowed: all are asked for at once",
			request: func() capacity.Request { r := oneZone(); r.Zones = []string{"eastus-2"}; return r }(),
			created: []string{first, second}, names: sorted(first, second), zones: []string{"eastus-2"},
		},
		{
			reason: "one is in another zone than the first: it is let go", request: oneZone(),
			live:   []client.Object{held("0", "A", inZone), held("1", "A", inOtherZone)},
			cached: []client.Object{held("0", "A", inZone), held("1", "A", inOtherZone)}, names: []string{first},
		},
		{
			reason: "the name is taken by somebody else: an error, and no takeover", request: request(1, "A"),
			live: []client.Object{foreign}, names: []string{first}, err: &capacity.TakenError{},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			live := newClient(t, test.live...)
			stale := newClient(t, test.cached...)
			// Reads come from the stale cache, and writes go to the API server.
			split := interceptor.NewClient(live, interceptor.Funcs{
				List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					return stale.List(ctx, list, options...)
				},
			})
			outcome, err := nodeclaim.New(split, live, class).Ensure(t.Context(), test.request)
			switch {
			case test.err == nil && err != nil:
				t.Fatalf("error: %v", err)
			case test.err != nil:
				if _, taken := errors.AsType[*capacity.TakenError](err); !taken {
					t.Fatalf("error: %v, want %T", err, test.err)
				}
			}
			if diff := cmp.Diff(test.created, createdNames(outcome)); diff != "" {
				t.Errorf("created (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.zones, createdZones(t, live, outcome)); diff != "" {
				t.Errorf("asked for in the zones (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.names, names(t, live)); diff != "" {
				t.Errorf("held afterwards (-want +got):\n%s", diff)
			}
		})
	}
}

// createdZones returns the required zones of new claims.
func createdZones(t *testing.T, c client.Reader, outcome capacity.Outcome) []string {
	t.Helper()
	var out []string
	for _, created := range outcome.Created {
		claim := &karpv1.NodeClaim{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: created.Name}, claim); err != nil {
			t.Fatal(err)
		}
		for _, requirement := range claim.Spec.Requirements {
			if requirement.Key != corev1.LabelTopologyZone {
				continue
			}
			for _, zone := range requirement.Values {
				if requirement.Operator != corev1.NodeSelectorOpIn {
					zone = string(requirement.Operator) + " " + zone
				}
				out = append(out, zone)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func createdNames(outcome capacity.Outcome) []string {
	var out []string
	for _, created := range outcome.Created {
		out = append(out, created.Name)
	}
	return out
}

func TestEnsureAsksBeforeItCreates(t *testing.T) {
	tests := []struct {
		reason string
		live   []client.Object
		want   string
		names  []string
	}{
		{"nothing is held: it asks, and creates nothing", nil, "not now", nil},
		{"everything is held: there is nothing to ask", []client.Object{held("0", "A")}, "", []string{nodeclaim.Name(owner, 1, 0)}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			live := newClient(t, test.live...)
			req := request(1, "A")
			req.Confirm = func(context.Context) error { return errors.New("not now") }
			_, err := nodeclaim.New(newClient(t), live, class).Ensure(t.Context(), req)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("error %q, want %q", got, test.want)
			}
			if diff := cmp.Diff(test.names, names(t, live)); diff != "" {
				t.Errorf("held afterwards (-want +got):\n%s", diff)
			}
		})
	}
}

func sorted(items ...string) []string {
	slices.Sort(items)
	return items
}

func oneZoneBut(zone string) capacity.Request {
	r := oneZone()
	r.AvoidZones = []string{zone}
	return r
}

func TestRelease(t *testing.T) {
	c := newClient(t, held("0", "A"), held("1", "A"), held("9", "B", func(c *karpv1.NodeClaim) {
		c.Name, c.Labels = "foreign", map[string]string{v1beta1.LabelWorkspaceUID: "someone-else"}
	}))
	provisioner := nodeclaim.New(c, c, class)
	left, err := provisioner.Release(t.Context(), owner)
	if err != nil || len(left) != 2 {
		t.Errorf("first release: %v left, error %v; want 2 on their way out", left, err)
	}
	left, err = provisioner.Release(t.Context(), owner)
	if err != nil || len(left) != 0 {
		t.Errorf("second release: %v left, error %v; want none", left, err)
	}
	if diff := cmp.Diff([]string{"foreign"}, names(t, c)); diff != "" {
		t.Errorf("held afterwards (-want +got):\n%s", diff)
	}
}

// TestKeep: a kept claim is not released, and does not delay the creation of others.
func TestKeep(t *testing.T) {
	ofLater := func(c *karpv1.NodeClaim) { c.Name = nodeclaim.Name(owner, 2, 0) }
	later := request(1, "B")
	later.Attempt, later.Keep = 2, []string{nodeclaim.Name(owner, 1, 0)}
	tests := []struct {
		reason string
		held   []client.Object
		want   capacity.Outcome
	}{
		{"it stands", []client.Object{held("0", "A")}, capacity.Outcome{Created: []capacity.Created{{Name: nodeclaim.Name(owner, 2, 0)}}}},
		{"it is on its way out", []client.Object{held("0", "A", deleting)}, capacity.Outcome{Created: []capacity.Created{{Name: nodeclaim.Name(owner, 2, 0)}}}},
		{"both stand", []client.Object{held("0", "A"), held("0", "B", ofLater)}, capacity.Outcome{}},
		{
			"another one stands: it goes first",
			[]client.Object{held("0", "A"), held("1", "A")},
			capacity.Outcome{Released: []string{nodeclaim.Name(owner, 1, 1)}},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			c := newClient(t, test.held...)
			got, err := nodeclaim.New(c, c, class).Ensure(t.Context(), later)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReleaseBut(t *testing.T) {
	first, second := nodeclaim.Name(owner, 1, 0), nodeclaim.Name(owner, 1, 1)
	c := newClient(t, held("0", "A"), held("1", "A"))
	provisioner := nodeclaim.New(c, c, class)
	left, err := provisioner.ReleaseBut(t.Context(), owner, []string{first})
	if diff := cmp.Diff([]string{second}, left); diff != "" || err != nil {
		t.Errorf("left (-want +got), error %v:\n%s", err, diff)
	}
	if left, err = provisioner.ReleaseBut(t.Context(), owner, []string{first}); err != nil || len(left) != 0 {
		t.Errorf("second release: %v left, error %v; want none but what is kept", left, err)
	}
	if diff := cmp.Diff([]string{first}, names(t, c)); diff != "" {
		t.Errorf("held afterwards (-want +got):\n%s", diff)
	}
}

func TestReleaseAsksTheServer(t *testing.T) {
	live := newClient(t, held("0", "A"))
	left, err := nodeclaim.New(newClient(t), live, class).Release(t.Context(), owner)
	if err != nil || len(left) != 1 {
		t.Errorf("%v left, error %v; want 1: an empty cache proves nothing", left, err)
	}
}

// TestReleaseNamesUIDs: a release by UID does not delete a new claim with the name of a deleted one.
func TestReleaseNamesUIDs(t *testing.T) {
	var deleted []types.UID
	c := interceptor.NewClient(newClient(t, held("0", "A")), interceptor.Funcs{
		Delete: func(ctx context.Context, inner client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			asked := (&client.DeleteOptions{}).ApplyOptions(options)
			if asked.Preconditions != nil && asked.Preconditions.UID != nil {
				deleted = append(deleted, *asked.Preconditions.UID)
			}
			return inner.Delete(ctx, object, options...)
		},
	})
	if _, err := nodeclaim.New(c, c, class).Release(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]types.UID{"held"}, deleted); diff != "" {
		t.Errorf("deleted by UID (-want +got):\n%s", diff)
	}
}

func TestHeldAsksTheServer(t *testing.T) {
	usable := func(c *karpv1.NodeClaim) { c.StatusConditions().SetTrue(karpv1.ConditionTypeInitialized) }
	live := newClient(t, held("0", "A", usable), held("1", "A", deleting), held("9", "B", func(c *karpv1.NodeClaim) {
		c.Name, c.Labels = "foreign", map[string]string{v1beta1.LabelWorkspaceUID: "someone-else"}
	}))
	got, err := nodeclaim.New(newClient(t), live, class).Held(t.Context(), owner, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{nodeclaim.Name(owner, 1, 0)}, capacity.MachineNames(got)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	if !got[0].Initialized {
		t.Error("the machine is not usable, though the API server says so")
	}
}

// TestObserveSkipsPreviousClaimOfName: a lagging cache may still show a claim in deletion after the request for its
// successor of the same name. That claim says nothing about the successor.
func TestObserveSkipsPreviousClaimOfName(t *testing.T) {
	uid := func(is types.UID) func(*karpv1.NodeClaim) {
		return func(claim *karpv1.NodeClaim) { claim.UID = is }
	}
	name := nodeclaim.Name(owner, 1, 0)
	former, newest := held("0", "A", uid("former"), deleting), held("0", "A", uid("newest"))
	foreign := held("0", "A", uid("newest"), func(claim *karpv1.NodeClaim) { claim.Labels[v1beta1.LabelWorkspaceUID] = "other" })
	tests := []struct {
		reason string
		known  types.UID
		there  *karpv1.NodeClaim
		want   types.UID
	}{
		{"it is the one that is known", "former", newest, "former"},
		{"none is known", "", newest, "former"},
		{"its successor is known", "newest", newest, "newest"},
		{"another one is known, and the server has this one", "lost", former, "former"},
		{"the name is somebody else's by now", "newest", foreign, "former"},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			pools := nodeclaim.New(newClient(t, former), newClient(t, test.there), class)
			got, err := pools.Observe(t.Context(), owner, []capacity.Created{{Name: name, UID: test.known}}, "nvidia.com/gpu")
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != 1 || got[0].UID != test.want {
				t.Errorf("got %+v, want the one with UID %s", got, test.want)
			}
		})
	}
}

func TestName(t *testing.T) {
	legal := regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	seen := map[string]bool{}
	for _, workspace := range []string{"a", "chat", strings.Repeat("a", 22) + "-b", strings.Repeat("very-", 10) + "x"} {
		for attempt := range int32(3) {
			for ordinal := range 3 {
				o := owner
				o.Name = workspace
				name := nodeclaim.Name(o, attempt, ordinal)
				if len(name) > 34 || !strings.Contains(name, "-") || !legal.MatchString(name) {
					t.Errorf("name %q of workspace %q is not usable for a VM", name, workspace)
				}
				if seen[name] {
					t.Errorf("name %q comes twice", name)
				}
				seen[name] = true
			}
		}
	}
}

// TestHolders expects the owners of standalone claims, for each provisioner.
func TestHolders(t *testing.T) {
	other, agents := owner, v1beta1.NodeClassReference{Group: "kaito.sh", Kind: "KaitoNodeClass", Name: "default"}
	other.UID = "other"
	c := newClient(t)
	for _, made := range []struct {
		owner capacity.Owner
		class v1beta1.NodeClassReference
	}{{owner, class}, {other, agents}} {
		req := request(2, "A")
		req.Owner = made.owner
		if _, err := nodeclaim.New(c, c, made.class).Ensure(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	ofPool := held("0", "A", func(claim *karpv1.NodeClaim) {
		claim.Name, claim.Labels = "of-a-pool", nodeclaim.Labels(capacity.Request{Owner: capacity.Owner{UID: "pool"}})
	})
	if err := c.Create(t.Context(), ofPool); err != nil {
		t.Fatal(err)
	}
	for reader, want := range map[v1beta1.NodeClassReference][]capacity.Owner{class: {owner}, agents: {other}} {
		got, err := nodeclaim.New(c, c, reader).Holders(t.Context())
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("for %s: error %v, (-want +got):\n%s", reader.Kind, err, diff)
		}
	}
}
