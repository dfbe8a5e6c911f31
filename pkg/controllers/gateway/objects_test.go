// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

func TestMatched(t *testing.T) {
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprint("adapter-", i)
	}
	cases := []struct {
		reason string
		facts  Facts
		want   []string
	}{
		{"names of models may belong to several sets", Facts{Names: []string{"chat", "phi"}}, []string{"team-a:chat"}},
		{"the administrator allows them", Facts{Names: []string{"chat", "phi"}, MatchModelNames: true}, []string{"team-a:chat", "chat", "phi"}},
		{"a rule has at most 64 matches", Facts{Names: many, MatchModelNames: true}, append([]string{"team-a:chat"}, many[:63]...)},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			c.facts.Set = &v1beta1.InferenceSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat"}}
			if diff := cmp.Diff(c.want, c.facts.matched()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusalOf(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, generation int64, message string) []metav1.Condition {
		return []metav1.Condition{{Type: kind, Status: status, Reason: "Because", Message: message, ObservedGeneration: generation}}
	}
	route := func(conditions []metav1.Condition) *gatewayv1.HTTPRoute {
		out := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: "r", Generation: 2}}
		out.Status.Parents = []gatewayv1.RouteParentStatus{{ParentRef: gatewayv1.ParentReference{Name: "g"}, Conditions: conditions}}
		return out
	}
	pool := &inferencev1.InferencePool{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 1}}
	refusedPool := pool.DeepCopy()
	refusedPool.Status.Parents = []inferencev1.ParentStatus{{
		ParentRef: inferencev1.ParentReference{Name: "g"}, Conditions: condition("ResolvedRefs", metav1.ConditionFalse, 1, "no Service"),
	}}
	cases := []struct {
		reason string
		route  *gatewayv1.HTTPRoute
		pool   *inferencev1.InferencePool
		want   string
	}{
		{"no gateway has looked yet", route(nil), pool, ""},
		{"accepted", route(condition("Accepted", metav1.ConditionTrue, 2, "")), pool, ""},
		{"refused", route(condition("Accepted", metav1.ConditionFalse, 2, "no listener")), pool, "the Gateway g does not use HTTPRoute r: Because: no listener"},
		{"a verdict about an older route", route(condition("Accepted", metav1.ConditionFalse, 1, "no listener")), pool, ""},
		{"a condition that is no verdict", route(condition("PartiallyInvalid", metav1.ConditionFalse, 2, "")), pool, ""},
		{"without a route", nil, refusedPool, "the Gateway g does not use InferencePool p: Because: no Service"},
		{
			"a long message", route(condition("Accepted", metav1.ConditionFalse, 2, strings.Repeat("ä ", 200))), pool,
			"the Gateway g does not use HTTPRoute r: Because: " + strings.Repeat("ä ", 127) + "ä…",
		},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			if diff := cmp.Diff(c.want, refusalOf(c.route, c.pool)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestLongName: a Service has at most 63 characters, and a set may have more. The set is reported once, and nothing is
// written.
func TestLongName(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1beta1.AddToScheme, AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	set := &v1beta1.InferenceSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: strings.Repeat("x", 46), UID: "1"}}
	events := record.NewFakeRecorder(5)
	r := New(Config{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(set).Build(), Events: events})
	for range 2 {
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(set)})
		if err != nil || result.RequeueAfter != 0 {
			t.Errorf("%v %v, want no further try", result, err)
		}
	}
	want := "Warning GatewayObjectsFailed the Service " + set.Name + "-inferencepool-epp would have more than 63 characters: " +
		"give the InferenceSet a name of at most 45"
	if got := <-events.Events; got != want {
		t.Errorf("the event is %q, want %q", got, want)
	}
	if len(events.Events) > 0 {
		t.Error("it is reported again")
	}
}
