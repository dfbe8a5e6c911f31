// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
			if diff := cmp.Diff(c.want, refusalOf(c.route, c.pool).text); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
