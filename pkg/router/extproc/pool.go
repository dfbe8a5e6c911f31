// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package extproc

import (
	"strings"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/router"
)

// poolOf returns the pool whose Service is in the authority of a stream. Each pool has a Service of its own, and gateways
// name it in different forms: SERVICE.NAMESPACE.svc:9002 in most, and outbound|9002||SERVICE.NAMESPACE.svc.cluster.local
// in Istio's names of clusters. The authority is from the gateway, never from its client.
func poolOf(authority string) (*router.Pool, bool) {
	isOther := func(r rune) bool {
		return r != '.' && r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}
	for host := range strings.FieldsFuncSeq(authority, isOther) {
		labels := strings.Split(host, ".")
		if len(labels) < 2 {
			continue
		}
		name, ok := strings.CutSuffix(labels[0], v1beta1.SuffixInferencePoolPicker)
		if ok && name != "" && labels[1] != "" {
			return &router.Pool{Namespace: labels[1], Name: name}, true
		}
	}
	return nil, false
}

// Names of the protocol.
const (
	keyEndpoint     = "x-gateway-destination-endpoint"
	namespaceLB     = "envoy.lb"
	keySubset       = "x-gateway-destination-endpoint-subset"
	namespaceSubset = "envoy.lb.subset_hint"
)

// subsetOf returns the only endpoints that the gateway can reach, or nil if it did not restrict them. An empty list
// means that it reaches none.
func subsetOf(first *extprocv3.ProcessingRequest) []string {
	hint := first.GetMetadataContext().GetFilterMetadata()[namespaceSubset].GetFields()[keySubset]
	if hint == nil {
		return nil
	}
	out := []string{}
	for _, value := range hint.GetListValue().GetValues() {
		out = append(out, strings.TrimSpace(value.GetStringValue()))
	}
	for value := range strings.SplitSeq(hint.GetStringValue(), ",") { // some gateways send one text
		if value = strings.TrimSpace(value); value != "" {
			out = append(out, value)
		}
	}
	return out
}
