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

const (
	aks = "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: gpu}\n"
	ec2 = "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: gpu}\n"
	// auto is a NodeClass of EKS Auto Mode.
	auto = "apiVersion: eks.amazonaws.com/v1\nkind: NodeClass\nmetadata: {name: gpu}\n"
)

func TestLacksDisk(t *testing.T) {
	for _, test := range []struct {
		reason string
		class  string
		need   int
		local  float64
		want   string
	}{
		{"the default of Azure does, 128 GB being 119 GiB", aks, 119, 0, ""},
		{
			"the default of Azure is too small", aks + "spec: {}", 120, 894,
			`AKSNodeClass "gpu" gives its machines an OS disk of 128 GB, the default, but weights and image need 120 GiB: ` +
				`set spec.osDiskSizeGB of the class to 152 or more`,
		},
		{"a larger one does", aks + "spec: {osDiskSizeGB: 512}", 400, 0, ""},
		{
			"so large a one does not", aks + "spec: {osDiskSizeGB: 512}", 500, 0,
			`AKSNodeClass "gpu" gives its machines an OS disk of 512 GB, but weights and image need 500 GiB: ` +
				`set spec.osDiskSizeGB of the class to 632 or more`,
		},
		{"a size that is none", aks + "spec: {osDiskSizeGB: large}", 500, 0, ""},

		{
			"the default of AWS is too small, and the machine has local disks", ec2 + "spec: {amiFamily: AL2023}", 60, 600,
			`EC2NodeClass "gpu" gives its machines a root volume of 20 GiB, but weights and image need 60 GiB: map a root volume of 71Gi ` +
				`or more in spec.blockDeviceMappings of the class (ebs.volumeSize), or set spec.instanceStorePolicy of the class to RAID0, which uses the ` +
				`machine's local disks (600 GiB in total)`,
		},
		{
			"the local disks would be too small, too", ec2 + "spec: {blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {volumeSize: 50Gi}}]}", 60, 30,
			`EC2NodeClass "gpu" gives its machines a root volume of 50 GiB, but weights and image need 60 GiB: map a root volume of 71Gi ` +
				`or more in spec.blockDeviceMappings of the class (ebs.volumeSize)`,
		},
		{"the root volume does", ec2 + "spec: {blockDeviceMappings: [{ebs: {volumeSize: 100Gi}}]}", 60, 0, ""},
		{"local disks are joined, and do", ec2 + "spec: {instanceStorePolicy: RAID0}", 60, 600, ""},
		{
			"local disks are joined, and are too small", ec2 + "spec: {instanceStorePolicy: RAID0}", 300, 125,
			`EC2NodeClass "gpu" puts pods on the machine's local disks (125 GiB in total), but weights and image need 300 GiB: allow another ` +
				`machine type, or unset the node class's spec.instanceStorePolicy and map a root volume of 353Gi or more`,
		},
		{
			"local disks would be joined, but the machine has none",
			ec2 + "spec: {instanceStorePolicy: RAID0, blockDeviceMappings: [{ebs: {volumeSize: 50Gi}}]}", 60, 0,
			`EC2NodeClass "gpu" gives its machines a root volume of 50 GiB, but weights and image need 60 GiB: map a root volume of 71Gi ` +
				`or more in spec.blockDeviceMappings of the class (ebs.volumeSize)`,
		},
		{
			"of several the one that is called root counts",
			ec2 + "spec: {blockDeviceMappings: [{ebs: {volumeSize: 500Gi}}, {rootVolume: true, ebs: {volumeSize: 50Gi}}]}", 60, 0,
			`EC2NodeClass "gpu" gives its machines a root volume of 50 GiB, but weights and image need 60 GiB: map a root volume of 71Gi ` +
				`or more in spec.blockDeviceMappings of the class (ebs.volumeSize)`,
		},
		{"of several any may be the one", ec2 + "spec: {blockDeviceMappings: [{ebs: {volumeSize: 5Gi}}, {ebs: {volumeSize: 500Gi}}]}", 60, 0, ""},
		{"a snapshot says how large it is", ec2 + "spec: {blockDeviceMappings: [{ebs: {snapshotID: snap-1}}]}", 60, 0, ""},
		{"Auto Mode has another field for the size", auto + "spec: {ephemeralStorage: {size: 160Gi}}", 150, 0, ""},
		{
			"the size in Auto Mode is too small", auto + "spec: {ephemeralStorage: {size: 80Gi}}", 150, 125,
			`NodeClass "gpu" gives its machines 80 GiB of ephemeral storage, but weights and image need 150 GiB: ` +
				`set its spec.ephemeralStorage.size to 177Gi or more`,
		},
		{
			"a size just below the need does not look like enough", auto + "spec: {ephemeralStorage: {size: 153500Mi}}", 150, 0,
			`NodeClass "gpu" gives its machines 149 GiB of ephemeral storage, but weights and image need 150 GiB: ` +
				`set its spec.ephemeralStorage.size to 177Gi or more`,
		},
		{"pods of Auto Mode may use the local disks", auto + "spec: {ephemeralStorage: {size: 80Gi}}", 150, 600, ""},
		{"Auto Mode without a size", auto + "spec: {}", 150, 0, ""},
		{"an image of one's own may bring any size", ec2 + "spec: {amiFamily: Custom}", 60, 0, ""},
		{"a mapping that is none", ec2 + "spec: {blockDeviceMappings: [large]}", 60, 0, ""},
		{"a policy that is none", ec2 + "spec: {instanceStorePolicy: 5}", 60, 0, ""},

		{"another cloud's class is not judged", "apiVersion: karpenter.example/v1\nkind: SomeNodeClass\nspec: {osDiskSizeGB: 1}", 500, 0, ""},
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
			got := preflight.LacksDisk(class, preflight.Disk{GiB: test.need, LocalGiB: test.local})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("LacksDisk (-want +got):\n%s", diff)
			}
		})
	}
}
