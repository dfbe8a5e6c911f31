// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/pkg/capacity/preflight"
)

func TestMetadataWithinReachOfPodsIsWarnedOf(t *testing.T) {
	const (
		reads  = `EC2NodeClass "gpu" lets pods read the credentials of the machine's role from the metadata service`
		tokens = reads + ": set spec.metadataOptions.httpTokens of the class to required and httpPutResponseHopLimit to 1"
		hops   = reads + ", 2 hops away: set spec.metadataOptions.httpPutResponseHopLimit of the class to 1"
	)
	for _, test := range []struct{ reason, class, want string }{
		{"Karpenter's defaults keep pods away", ec2 + "spec: {}", ""},
		{"so does what they stand for", ec2 + "spec: {metadataOptions: {httpTokens: required, httpPutResponseHopLimit: 1}}", ""},
		{"a second hop leads into pods", ec2 + "spec: {metadataOptions: {httpPutResponseHopLimit: 2}}", hops},
		{"without tokens no hop counts", ec2 + "spec: {metadataOptions: {httpTokens: optional, httpPutResponseHopLimit: 1}}", tokens},
		{"no metadata at all", ec2 + "spec: {metadataOptions: {httpEndpoint: disabled, httpPutResponseHopLimit: 2}}", ""},
		{"a limit that is none", ec2 + "spec: {metadataOptions: {httpPutResponseHopLimit: many}}", ""},
		{"Azure's class does not say", aks + "spec: {}", ""},
	} {
		t.Run(test.reason, func(t *testing.T) {
			asJSON, err := yaml.YAMLToJSON([]byte(test.class))
			if err != nil {
				t.Fatal(err)
			}
			class := &unstructured.Unstructured{}
			if err := class.UnmarshalJSON(asJSON); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, preflight.ExposesMetadata(class)); diff != "" {
				t.Errorf("ExposesMetadata (-want +got):\n%s", diff)
			}
		})
	}
}
