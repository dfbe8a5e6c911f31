// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/options"
)

func TestChoose(t *testing.T) {
	claims, pools := schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodeClaim"},
		schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodePool"}
	old := schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1beta1", Kind: "NodeClaim"}
	lacks := func(asked, what string) string {
		return "--capacity-backend=" + asked + ": this cluster does not serve " + what + " (v1): install Karpenter with a provider " +
			"for your cloud, or choose pods, existing or auto"
	}
	tests := []struct {
		reason string
		served []schema.GroupVersionKind
		asked  string
		want   backEnd
		err    string
	}{
		{"Karpenter is there", []schema.GroupVersionKind{claims, pools}, options.BackendAuto, options.BackendNodeClaim, ""},
		{"no flag is auto", []schema.GroupVersionKind{claims, pools}, "", options.BackendNodeClaim, ""},
		{"gpu-provisioner has no pools", []schema.GroupVersionKind{claims}, options.BackendAuto, options.BackendNodeClaim, ""},
		{"nothing is there, which may change", nil, options.BackendAuto, absent, ""},
		{"Karpenter is too old", []schema.GroupVersionKind{old}, options.BackendAuto, absent, ""},
		{"pools only where they are asked for", []schema.GroupVersionKind{claims, pools}, options.BackendNodePool, options.BackendNodePool, ""},
		{"pods beside Karpenter", []schema.GroupVersionKind{claims, pools}, options.BackendPods, options.BackendPods, ""},
		{"pods without Karpenter", nil, options.BackendPods, options.BackendPods, ""},
		{"nothing is bought", nil, options.BackendExisting, options.BackendExisting, ""},
		{"claims without Karpenter", nil, options.BackendNodeClaim, "", lacks(options.BackendNodeClaim, "nodeclaims.karpenter.sh")},
		{"pools without Karpenter", nil, options.BackendNodePool, "", lacks(options.BackendNodePool, "nodepools.karpenter.sh, nodeclaims.karpenter.sh")},
		{"pools with gpu-provisioner", []schema.GroupVersionKind{claims}, options.BackendNodePool, "", lacks(options.BackendNodePool, "nodepools.karpenter.sh")},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			mapper := meta.NewDefaultRESTMapper(nil)
			for _, kind := range test.served {
				mapper.Add(kind, meta.RESTScopeRoot)
			}
			served, err := servedBy(mapper)
			if err != nil {
				t.Fatal(err)
			}
			got, err := choose(served, test.asked)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if got != test.want || text != test.err {
				t.Errorf("got %q, %q; want %q, %q", got, text, test.want, test.err)
			}
		})
	}
}

// TestNodeClasses checks that all node classes have the same provisioner.
func TestNodeClasses(t *testing.T) {
	aks, kaito := v1beta1.NodeClassReference{Group: "karpenter.azure.com", Kind: "AKSNodeClass", Name: "gpu"},
		v1beta1.NodeClassReference{Group: "kaito.sh", Kind: "KaitoNodeClass", Name: "default"}
	tests := []struct {
		reason      string
		classes     []v1beta1.NodeClassReference
		chosen      backEnd
		provisioner string
		err         string
	}{
		{"Karpenter's", []v1beta1.NodeClassReference{aks, aks}, options.BackendNodePool, "karpenter", ""},
		{"gpu-provisioner's", []v1beta1.NodeClassReference{kaito}, options.BackendNodeClaim, "gpu-provisioner", ""},
		{"nobody's", nil, options.BackendPods, "", ""},
		{
			"both",
			[]v1beta1.NodeClassReference{aks, kaito},
			options.BackendNodeClaim, "gpu-provisioner",
			"--node-class: KaitoNodeClass belongs to gpu-provisioner and cannot be combined with Karpenter's classes: use one kind",
		},
		{
			"pools of gpu-provisioner",
			[]v1beta1.NodeClassReference{kaito},
			options.BackendNodePool, "gpu-provisioner",
			"--capacity-backend=nodepool needs Karpenter, but --node-class names a KaitoNodeClass of gpu-provisioner: choose nodeclaim",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			text := ""
			if err := checkNodeClasses(test.classes, test.chosen); err != nil {
				text = err.Error()
			}
			if got := test.chosen.provisioner(options.Controller{NodeClasses: test.classes}); got != test.provisioner || text != test.err {
				t.Errorf("%q, error %q; want %q, %q", got, text, test.provisioner, test.err)
			}
		})
	}
}

func TestCloudsFor(t *testing.T) {
	nodes := []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{ProviderID: "azure:///subscriptions/1/vm/a"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: corev1.NodeSpec{ProviderID: "gce://project/zone/b"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: corev1.NodeSpec{ProviderID: "azure:///subscriptions/1/vm/c"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: corev1.NodeSpec{ProviderID: "kind://docker/d"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "e"}},
	}
	live := fake.NewClientBuilder().WithObjects(nodes...).Build()
	tests := []struct {
		reason string
		asked  []string
		chosen backEnd
		want   []string
	}{
		{"the administrator says", []string{"aws"}, options.BackendPods, []string{"aws"}},
		{"the nodes tell, each cloud once", nil, options.BackendPods, []string{"azure", "gcp"}},
		{"what is bought may be of any cloud", nil, options.BackendNodeClaim, nil},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			got, err := cloudsFor(t.Context(), live, test.asked, test.chosen)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %v, %v; want %v", got, err, test.want)
			}
		})
	}
}
