// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/test/localcloud/layout"
)

func TestObjects(t *testing.T) {
	objects, err := Objects()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, object := range objects {
		got = append(got, fmt.Sprintf("%s %s %s", object.GetAPIVersion(), object.GetKind(), object.GetName()))
	}
	want := []string{
		"apiextensions.k8s.io/v1 CustomResourceDefinition nodepools.karpenter.sh",
		"apiextensions.k8s.io/v1 CustomResourceDefinition nodeclaims.karpenter.sh",
		"apiextensions.k8s.io/v1 CustomResourceDefinition nodeoverlays.karpenter.sh",
		"apiextensions.k8s.io/v1 CustomResourceDefinition localnodeclasses.local.modelberth.dev",
		"rbac.authorization.k8s.io/v1 ClusterRole system:coredns",
		"rbac.authorization.k8s.io/v1 ClusterRoleBinding system:coredns",
		"v1 Service kube-dns",
		"discovery.k8s.io/v1 EndpointSlice kube-dns",
		"rbac.authorization.k8s.io/v1 ClusterRoleBinding karpenter",
		"local.modelberth.dev/v1alpha1 LocalNodeClass default",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects in their order (-want +got):\n%s", diff)
	}
}

func TestAddressesAreFilledIn(t *testing.T) {
	objects, err := Objects()
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, object := range objects {
		data, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		text += string(data)
	}
	if strings.Contains(text, "${") {
		t.Error("a manifest holds a place that nothing was filled into")
	}
	for _, address := range []string{layout.DNSService, layout.ControlAddress} {
		if !strings.Contains(text, address) {
			t.Errorf("no object holds the address %s", address)
		}
	}
}
