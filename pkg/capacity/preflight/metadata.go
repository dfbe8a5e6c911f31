// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// Defaults of an EC2NodeClass (karpenter-provider-aws v1.10.0, MetadataOptions in pkg/apis/v1/ec2nodeclass.go).
const (
	awsDefaultHops   = 1
	awsDefaultTokens = "required"
)

// ExposesMetadata returns a sentence with the setting to change if pods can read the metadata of a node class's
// machines, which includes the credentials of their role. It is empty if pods cannot, or if the class has no such
// settings.
func ExposesMetadata(class *unstructured.Unstructured) string {
	gvk := class.GroupVersionKind()
	if refusal.ProviderOf(gvk.Group, gvk.Kind) != refusal.KarpenterAWS {
		return ""
	}
	options := func(name string) []string { return []string{"spec", "metadataOptions", name} }
	endpoint, _, endpointErr := unstructured.NestedString(class.Object, options("httpEndpoint")...)
	tokens, hasTokens, tokensErr := unstructured.NestedString(class.Object, options("httpTokens")...)
	hops, hasHops, hopsErr := unstructured.NestedInt64(class.Object, options("httpPutResponseHopLimit")...)
	if endpointErr != nil || tokensErr != nil || hopsErr != nil || endpoint == "disabled" {
		return ""
	}
	if !hasTokens {
		tokens = awsDefaultTokens
	}
	if !hasHops {
		hops = awsDefaultHops
	}
	switch {
	case tokens != awsDefaultTokens: // the hop limit applies only to responses with a token
		return fmt.Sprintf("%s %q lets pods read the credentials of the machine's role from the metadata service: "+
			"set spec.metadataOptions.httpTokens of the class to required and httpPutResponseHopLimit to 1", class.GetKind(), class.GetName())
	case hops > awsDefaultHops:
		return fmt.Sprintf("%s %q lets pods read the credentials of the machine's role from the metadata service, %d hops away: "+
			"set spec.metadataOptions.httpPutResponseHopLimit of the class to 1", class.GetKind(), class.GetName(), hops)
	default:
		return ""
	}
}
