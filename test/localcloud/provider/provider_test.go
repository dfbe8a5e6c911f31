// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/provider/v1alpha1"
	"github.com/modelberth/modelberth/test/localcloud/sku"
)

// fakeCloud answers from its fields and records the requests.
type fakeCloud struct {
	// refuse answers a request; nil sells everything.
	refuse func(cloud.Request) error
	// stubborn machines do not end.
	stubborn bool
	err      error

	asked    []string
	requests []cloud.Request
	machines map[string]cloud.Machine
}

func (f *fakeCloud) Create(_ context.Context, r cloud.Request) (cloud.Machine, error) {
	f.asked = append(f.asked, fmt.Sprintf("%s %s %s", r.SKU, r.Zone, r.CapacityType))
	f.requests = append(f.requests, r)
	if f.refuse != nil {
		if err := f.refuse(r); err != nil {
			return cloud.Machine{}, err
		}
	}
	m := cloud.Machine{Request: r, ID: "m-1", ProviderID: "local://m-1", State: cloud.Starting}
	f.machines = map[string]cloud.Machine{"m-1": m}
	return m, nil
}

func (f *fakeCloud) Get(_ context.Context, id string) (cloud.Machine, error) {
	if f.err != nil {
		return cloud.Machine{}, f.err
	}
	m, ok := f.machines[id]
	if !ok {
		return cloud.Machine{}, &cloud.Error{Code: cloud.CodeNotFound, Message: "there is no machine " + id}
	}
	return m, nil
}

func (f *fakeCloud) List(context.Context) ([]cloud.Machine, error) {
	var out []cloud.Machine
	for _, m := range f.machines {
		out = append(out, m)
	}
	return out, f.err
}

func (f *fakeCloud) Delete(ctx context.Context, id string) error {
	m, err := f.Get(ctx, id)
	if err != nil {
		return err
	}
	delete(f.machines, id)
	if f.stubborn {
		m.State = cloud.Stopping
		f.machines[id] = m
	}
	return nil
}

func testSKUs() []sku.SKU {
	return []sku.SKU{
		{
			Name: "small", Region: "r", Zones: []string{"r-1", "r-2"}, VCPUs: 4, MemoryGiB: 16, DiskGiB: 128,
			GPUs: 1, Resource: "nvidia.com/gpu", Prices: map[string]float64{"on-demand": 1, "spot": 0.4},
		},
		{
			Name: "large", Region: "r", Zones: []string{"r-1"}, VCPUs: 96, MemoryGiB: 900, DiskGiB: 1000,
			GPUs: 8, Resource: "nvidia.com/gpu", Prices: map[string]float64{"on-demand": 20},
		},
	}
}

func nodeClass(readiness metav1.ConditionStatus) *v1alpha1.LocalNodeClass {
	class := &v1alpha1.LocalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if readiness != "" {
		class.Status.Conditions = []status.Condition{{Type: "Ready", Status: readiness, Message: "because"}}
	}
	return class
}

func newTestProvider(c Cloud, objects ...client.Object) *Provider {
	scheme := runtime.NewScheme()
	v1alpha1.AddToScheme(scheme)
	return New(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), c, testSKUs())
}

func demand(key string, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
	return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

func claim(demands ...karpv1.NodeSelectorRequirementWithMinValues) *karpv1.NodeClaim {
	return &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu", Labels: map[string]string{"mine": "yes"}},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "LocalNodeClass", Name: "default"},
			Requirements: demands,
			Taints:       []corev1.Taint{{Key: "sku", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}},
		},
	}
}

func refuseIn(code cloud.Code, places ...string) func(cloud.Request) error {
	return func(r cloud.Request) error {
		for _, place := range places {
			if strings.Contains(r.SKU+" "+r.Zone+" "+r.CapacityType, place) {
				return &cloud.Error{Code: code, Message: string(code) + " in " + r.Zone}
			}
		}
		return nil
	}
}

// kindOf names an error by Karpenter's kinds.
func kindOf(err error) string {
	var create *cloudprovider.CreateError
	switch {
	case err == nil:
		return ""
	case cloudprovider.IsInsufficientCapacityError(err):
		return "InsufficientCapacity"
	case cloudprovider.IsNodeClassNotReadyError(err):
		return "NodeClassNotReady"
	case errors.As(err, &create):
		return "Create " + create.ConditionReason
	}
	return "other"
}

func TestCreate(t *testing.T) {
	const (
		typeKey = corev1.LabelInstanceTypeStable
		zoneKey = corev1.LabelTopologyZone
		wayKey  = karpv1.CapacityTypeLabelKey
	)
	withRequests := func(requests corev1.ResourceList) *karpv1.NodeClaim {
		c := claim(demand(typeKey, "small"), demand(wayKey, "on-demand"))
		c.Spec.Resources.Requests = requests
		return c
	}
	for _, test := range []struct {
		reason  string
		claim   *karpv1.NodeClaim
		class   *v1alpha1.LocalNodeClass
		refuse  func(cloud.Request) error
		asked   []string
		kind    string
		message string
	}{
		{
			reason: "the cheapest offer is taken", claim: claim(demand(typeKey, "large", "small")),
			asked: []string{"small r-1 spot"},
		},
		{
			reason: "within what the claim demands", claim: claim(demand(typeKey, "small"), demand(zoneKey, "r-2"), demand(wayKey, "on-demand")),
			asked: []string{"small r-2 on-demand"},
		},
		{
			reason: "a place without capacity is passed over", claim: claim(demand(typeKey, "small"), demand(wayKey, "on-demand")),
			refuse: refuseIn(cloud.CodeNoCapacity, "r-1"), asked: []string{"small r-1 on-demand", "small r-2 on-demand"},
		},
		{
			reason: "no capacity anywhere deletes the claim", claim: claim(demand(typeKey, "small"), demand(wayKey, "on-demand")),
			refuse: refuseIn(cloud.CodeNoCapacity, "small"), asked: []string{"small r-1 on-demand", "small r-2 on-demand"},
			kind: "InsufficientCapacity", message: "insufficient capacity, NoCapacity in r-1; NoCapacity in r-2",
		},
		{
			reason: "no quota keeps the claim and says so", claim: claim(demand(typeKey, "large")),
			refuse: refuseIn(cloud.CodeQuota, "large"), asked: []string{"large r-1 on-demand"},
			kind: "Create SubscriptionQuotaReached", message: "creating nodeclaim, QuotaExceeded in r-1",
		},
		{
			reason: "no quota for one is no reason not to try the other", claim: claim(demand(typeKey, "small", "large"), demand(wayKey, "on-demand")),
			refuse: refuseIn(cloud.CodeQuota, "small"),
			asked:  []string{"small r-1 on-demand", "small r-2 on-demand", "large r-1 on-demand"},
		},
		{
			reason: "a name that is not free yet is tried again later", claim: claim(demand(typeKey, "large")),
			refuse: refuseIn(cloud.CodeConflict, "large"), asked: []string{"large r-1 on-demand"},
			kind: "Create CreateInstanceFailed", message: "creating nodeclaim, Conflict in r-1",
		},
		{
			reason: "a cloud that cannot be reached is nobody's refusal", claim: claim(demand(typeKey, "large")),
			refuse: func(cloud.Request) error { return errors.New("connection refused") }, asked: []string{"large r-1 on-demand"},
			kind: "other", message: "creating machine gpu: connection refused",
		},
		{
			reason: "a type that is not sold", claim: claim(demand(typeKey, "huge")),
			kind:    "InsufficientCapacity",
			message: "insufficient capacity, all requested instance types were unavailable during launch: none of the machine types asked for is in the catalogue",
		},
		{
			reason: "a type that is not sold there", claim: claim(demand(typeKey, "large"), demand(zoneKey, "r-2")),
			kind:    "InsufficientCapacity",
			message: "insufficient capacity, all requested instance types were unavailable during launch: large: key topology.kubernetes.io/zone, topology.kubernetes.io/zone In [r-1] not in topology.kubernetes.io/zone In [r-2]",
		},
		{
			reason: "more GPUs than it has",
			claim:  withRequests(corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}),
			kind:   "InsufficientCapacity",
			message: "insufficient capacity, all requested instance types were unavailable during launch: " +
				"small: it is too small for 2 nvidia.com/gpu of 1",
		},
		{
			reason: "all of its memory is more than it can give",
			claim:  withRequests(corev1.ResourceList{"memory": resource.MustParse("16Gi"), "ephemeral-storage": resource.MustParse("200Gi")}),
			kind:   "InsufficientCapacity",
			message: "insufficient capacity, all requested instance types were unavailable during launch: " +
				"small: it is too small for 200Gi ephemeral-storage of 128Gi, 16Gi memory of 15Gi",
		},
		{
			reason: "what fits is sold",
			claim:  withRequests(corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1"), "ephemeral-storage": resource.MustParse("100Gi")}),
			asked:  []string{"small r-1 on-demand"},
		},
		{
			reason: "labels of the claim's own are no demand on the type", claim: claim(demand(typeKey, "large"), demand("example.com/team", "a")),
			asked: []string{"large r-1 on-demand"},
		},
		{
			reason: "another architecture", claim: claim(demand(typeKey, "large"), demand(corev1.LabelArchStable, "arm64")),
			kind:    "InsufficientCapacity",
			message: "insufficient capacity, all requested instance types were unavailable during launch: large: key kubernetes.io/arch, kubernetes.io/arch In [amd64] not in kubernetes.io/arch In [arm64]",
		},
		{
			reason: "no such node class", claim: claim(demand(typeKey, "large")), class: &v1alpha1.LocalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}},
			kind: "InsufficientCapacity", message: `insufficient capacity, resolving LocalNodeClass "default": localnodeclasses.local.modelberth.dev "default" not found`,
		},
		{
			reason: "a node class that is not ready", claim: claim(demand(typeKey, "large")), class: nodeClass(metav1.ConditionFalse),
			kind: "NodeClassNotReady", message: `NodeClassRef not ready, LocalNodeClass "default" is not ready: because`,
		},
		{
			reason: "a node class that nobody has looked at", claim: claim(demand(typeKey, "large")), class: nodeClass(""),
			kind: "Create NodeClassReadinessUnknown", message: `creating nodeclaim, readiness of LocalNodeClass "default" is unknown`,
		},
	} {
		t.Run(test.reason, func(t *testing.T) {
			class := test.class
			if class == nil {
				class = nodeClass(metav1.ConditionTrue)
			}
			c := &fakeCloud{refuse: test.refuse}
			got, err := newTestProvider(c, class).Create(t.Context(), test.claim)
			if diff := cmp.Diff(test.asked, c.asked); diff != "" {
				t.Errorf("asked the cloud for (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.kind, kindOf(err)); diff != "" {
				t.Errorf("kind of error (-want +got):\n%s\nerror: %v", diff, err)
			}
			if err != nil {
				if diff := cmp.Diff(test.message, err.Error()); diff != "" {
					t.Errorf("message (-want +got):\n%s", diff)
				}
				return
			}
			if got.Status.ProviderID != "local://m-1" {
				t.Errorf("provider id %q, want that of the machine", got.Status.ProviderID)
			}
		})
	}
}

func TestRequest(t *testing.T) {
	c := &fakeCloud{}
	wanted := claim(demand(corev1.LabelInstanceTypeStable, "large"), demand("example.com/team", "a"), demand("example.com/any", "a", "b"))
	wanted.UID = "uid"
	wanted.Spec.StartupTaints = []corev1.Taint{{Key: "warming", Effect: corev1.TaintEffectNoExecute}}
	if _, err := newTestProvider(c, nodeClass(metav1.ConditionTrue)).Create(t.Context(), wanted); err != nil {
		t.Fatal(err)
	}
	want := []cloud.Request{{
		Name: "gpu", SKU: "large", Zone: "r-1", CapacityType: "on-demand", Claim: "uid",
		Labels: map[string]string{"mine": "yes", "node.kubernetes.io/instance-type": "large", "example.com/team": "a"},
		Taints: []corev1.Taint{
			{Key: "sku", Value: "gpu", Effect: corev1.TaintEffectNoSchedule},
			{Key: "warming", Effect: corev1.TaintEffectNoExecute},
			{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute},
		},
	}}
	unnumbered := cmpopts.IgnoreFields(cloud.Request{}, "Attempt")
	if diff := cmp.Diff(want, c.requests, unnumbered); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func TestClaimOfMachine(t *testing.T) {
	c := &fakeCloud{machines: map[string]cloud.Machine{
		"m-1": {Request: cloud.Request{Name: "gpu", SKU: "small", Zone: "r-2", CapacityType: "spot"}, ID: "m-1", ProviderID: "local://m-1"},
	}}
	got, err := newTestProvider(c).Get(t.Context(), "local://m-1")
	if err != nil {
		t.Fatal(err)
	}
	want := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu", Labels: map[string]string{
			"node.kubernetes.io/instance-type": "small", "topology.kubernetes.io/zone": "r-2", "topology.kubernetes.io/region": "r",
			"karpenter.sh/capacity-type": "spot", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
		}},
		Status: karpv1.NodeClaimStatus{
			ProviderID: "local://m-1", ImageID: "local",
			Capacity:    allOf("4", "16Gi"),
			Allocatable: allOf("4", "15Gi"),
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("claim (-want +got):\n%s", diff)
	}
}

func allOf(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{
		"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory), "ephemeral-storage": resource.MustParse("128Gi"),
		"pods": resource.MustParse("110"), "nvidia.com/gpu": resource.MustParse("1"),
	}
}

func TestGetListDelete(t *testing.T) {
	sold := func() map[string]cloud.Machine {
		return map[string]cloud.Machine{
			"m-1": {ID: "m-1", ProviderID: "local://m-1", Created: time.Unix(1, 0)},
			"m-2": {ID: "m-2", ProviderID: "local://m-2", System: true},
		}
	}
	withID := func(id string) *karpv1.NodeClaim {
		return &karpv1.NodeClaim{Status: karpv1.NodeClaimStatus{ProviderID: id}}
	}
	t.Run("what is not there is not found", func(t *testing.T) {
		p := newTestProvider(&fakeCloud{machines: sold()})
		for _, id := range []string{"local://m-9", "azure://m-1", ""} {
			if _, err := p.Get(t.Context(), id); !cloudprovider.IsNodeClaimNotFoundError(err) {
				t.Errorf("Get(%q) says %v, want NodeClaimNotFound", id, err)
			}
			if err := p.Delete(t.Context(), withID(id)); !cloudprovider.IsNodeClaimNotFoundError(err) {
				t.Errorf("Delete(%q) says %v, want NodeClaimNotFound", id, err)
			}
		}
	})
	t.Run("a cloud that cannot be reached has lost nothing", func(t *testing.T) {
		p := newTestProvider(&fakeCloud{machines: sold(), err: errors.New("connection refused")})
		_, getErr := p.Get(t.Context(), "local://m-1")
		_, listErr := p.List(t.Context())
		for _, err := range []error{getErr, listErr, p.Delete(t.Context(), withID("local://m-1"))} {
			if err == nil || cloudprovider.IsNodeClaimNotFoundError(err) {
				t.Errorf("error %v, want one that is not NodeClaimNotFound", err)
			}
		}
	})
	t.Run("the cloud's own machine is none of Karpenter's", func(t *testing.T) {
		claims, err := newTestProvider(&fakeCloud{machines: sold()}).List(t.Context())
		if err != nil || len(claims) != 1 || claims[0].Status.ProviderID != "local://m-1" {
			t.Errorf("listed %v, %v; want m-1 alone", claims, err)
		}
	})
	t.Run("a machine that ends quickly is reported gone", func(t *testing.T) {
		if err := newTestProvider(&fakeCloud{machines: sold()}).Delete(t.Context(), withID("local://m-1")); !cloudprovider.IsNodeClaimNotFoundError(err) {
			t.Errorf("Delete says %v, want NodeClaimNotFound", err)
		}
	})
	t.Run("one that takes longer is being deleted", func(t *testing.T) {
		p := newTestProvider(&fakeCloud{machines: sold(), stubborn: true})
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // the caller's patience, so that the test needs none
		if err := p.Delete(ctx, withID("local://m-1")); err != nil {
			t.Errorf("Delete says %v, want no error", err)
		}
		got, err := p.Get(t.Context(), "local://m-1")
		if err != nil || got.DeletionTimestamp.IsZero() {
			t.Errorf("the machine is shown as %v, %v; want one that is being deleted", got, err)
		}
	})
}

func TestInstanceTypesStayWhole(t *testing.T) {
	types, err := newTestProvider(&fakeCloud{}).GetInstanceTypes(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, it := range types {
		got[it.Name] = len(it.Offerings.Available())
	}
	if diff := cmp.Diff(map[string]int{"small": 4, "large": 1}, got); diff != "" {
		t.Errorf("offerings by type (-want +got):\n%s", diff)
	}
}

func TestCopyOfNodeClassSharesNothing(t *testing.T) {
	original := nodeClass(metav1.ConditionTrue)
	copied := original.DeepCopy()
	copied.Status.Conditions[0].Status = metav1.ConditionFalse
	if diff := cmp.Diff(nodeClass(metav1.ConditionTrue), original); diff != "" {
		t.Errorf("a change of the copy reached the original (-want +got):\n%s", diff)
	}
}
