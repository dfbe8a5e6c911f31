// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/wording"
)

// maxText is the longest text of a gateway in an event, in characters.
const maxText = 256

// refusalOf returns why a gateway does not use a route or a pool; without a text if it does, or has not decided yet.
func refusalOf(route *gatewayv1.HTTPRoute, pool *inferencev1.InferencePool) problem {
	if route != nil {
		for i := range route.Status.Parents {
			parent := &route.Status.Parents[i]
			if c := refused(parent.Conditions, route.Generation); c != nil {
				return refusal(string(parent.ParentRef.Name), "HTTPRoute "+route.Name, c)
			}
		}
	}
	for i := range pool.Status.Parents {
		parent := &pool.Status.Parents[i]
		if c := refused(parent.Conditions, pool.Generation); c != nil {
			return refusal(string(parent.ParentRef.Name), "InferencePool "+pool.Name, c)
		}
	}
	return problem{}
}

// refusal is the problem of an object that a gateway refuses.
func refusal(gateway, object string, c *metav1.Condition) problem {
	return problem{
		cause{reason: v1beta1.ReasonGatewayRefused, object: object, detail: gateway + " " + c.Type + " " + c.Reason},
		fmt.Sprintf("the Gateway %s does not use %s: %s: %s", gateway, object, c.Reason, short(c.Message)),
	}
}

// refused returns the refusal of the current generation; nil if there is none.
func refused(conditions []metav1.Condition, generation int64) *metav1.Condition {
	for i := range conditions {
		c := &conditions[i]
		isVerdict := c.Type == string(gatewayv1.RouteConditionAccepted) || c.Type == string(gatewayv1.RouteConditionResolvedRefs)
		if isVerdict && c.Status == metav1.ConditionFalse && c.ObservedGeneration == generation {
			return c
		}
	}
	return nil
}

// short bounds a text of another controller.
func short(text string) string { return wording.Clip(wording.OneLine(text), maxText) }
