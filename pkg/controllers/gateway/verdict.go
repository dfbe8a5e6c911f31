// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelberth/modelberth/pkg/wording"
)

// maxText is the longest text of a gateway in an event, in characters.
const maxText = 256

// refusalOf returns why a gateway does not use a route or a pool; empty if it does, or has not decided yet.
func refusalOf(route *gatewayv1.HTTPRoute, pool *inferencev1.InferencePool) string {
	if route != nil {
		for i := range route.Status.Parents {
			parent := &route.Status.Parents[i]
			if text := refused(parent.Conditions, route.Generation); text != "" {
				return fmt.Sprintf("the Gateway %s does not use HTTPRoute %s: %s", parent.ParentRef.Name, route.Name, text)
			}
		}
	}
	for i := range pool.Status.Parents {
		parent := &pool.Status.Parents[i]
		if text := refused(parent.Conditions, pool.Generation); text != "" {
			return fmt.Sprintf("the Gateway %s does not use InferencePool %s: %s", parent.ParentRef.Name, pool.Name, text)
		}
	}
	return ""
}

// refused returns the reason and the message of a refusal of the current generation; empty if there is none.
func refused(conditions []metav1.Condition, generation int64) string {
	for i := range conditions {
		c := &conditions[i]
		isVerdict := c.Type == string(gatewayv1.RouteConditionAccepted) || c.Type == string(gatewayv1.RouteConditionResolvedRefs)
		if !isVerdict || c.Status != metav1.ConditionFalse || c.ObservedGeneration != generation {
			continue
		}
		return c.Reason + ": " + short(c.Message)
	}
	return ""
}

// short bounds a text of another controller.
func short(text string) string { return wording.Clip(wording.OneLine(text), maxText) }
