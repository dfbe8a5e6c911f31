// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/modelberth/modelberth/pkg/controllers/gateway"
	"github.com/modelberth/modelberth/pkg/options"
)

// TestOneRulePerKind: the rules of a cache are keyed by pointers. Of two rules for a kind, the cache takes either.
func TestOneRulePerKind(t *testing.T) {
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	served := kinds{nodeClaimKind(), nodePoolKind()}
	for _, kind := range gateway.Kinds(true) {
		served = append(served, kind.GroupKind())
	}
	routers := types.NamespacedName{Namespace: "modelberth", Name: "routers"}
	for _, backEnd := range []backEnd{options.BackendNodeClaim, options.BackendNodePool, options.BackendPods} {
		o := options.Controller{Gateway: options.Gateway{Routers: routers, Gateway: types.NamespacedName{Namespace: "edge", Name: "gateway"}}}
		if !hasGateways(served, o.Gateway) {
			t.Fatal("no gateways: the test would miss their rules")
		}
		rules := map[string]int{}
		for object := range cacheOptions(o, backEnd, served).ByObject {
			kind, err := apiutil.GVKForObject(object, scheme)
			if err != nil {
				t.Fatal(err)
			}
			rules[kind.String()]++
			if rules[kind.String()] > 1 {
				t.Errorf("%s: several rules for %s", backEnd, kind)
			}
		}
	}
}

func TestRulesOnly(t *testing.T) {
	for _, test := range []struct {
		reason         string
		in, wantLabels map[string]string
		annotations    map[string]string
		want           map[string]string
	}{
		{"nothing decides", map[string]string{"team": "a"}, map[string]string{}, map[string]string{"note": "x"}, nil},
		{
			"the rules stay",
			map[string]string{"pod-security.kubernetes.io/enforce": "baseline"},
			map[string]string{"pod-security.kubernetes.io/enforce": "baseline"},
			map[string]string{
				"modelberth.dev/spending-ceiling": "50", "modelberth.dev/monthly-budget": "500", "modelberth.dev/budget-action": "alert", "note": "x",
			},
			map[string]string{"modelberth.dev/spending-ceiling": "50", "modelberth.dev/monthly-budget": "500", "modelberth.dev/budget-action": "alert"},
		},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got, err := rulesOnly(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: test.in, Annotations: test.annotations}})
			if err != nil {
				t.Fatal(err)
			}
			want := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: test.wantLabels, Annotations: test.want}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
