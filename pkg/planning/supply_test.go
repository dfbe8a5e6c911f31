// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planning

import "testing"

// TestHostPaths checks that directories are compared by whole names: a neighbor with the same beginning is not allowed.
func TestHostPaths(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		allowed []string
		path    string
		want    bool
	}{
		{"nothing is by itself", nil, "/var/lib/models", false},
		{"the directory", []string{"/mnt", "/var/lib/models"}, "/var/lib/models", true},
		{"below it", []string{"/var/lib/models"}, "/var/lib/models/phi-4", true},
		{"above it", []string{"/var/lib/models"}, "/var/lib", false},
		{"beside it", []string{"/var/lib/models"}, "/var/lib/models-of-others", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			supply := &ClusterSupply{HostPaths: tc.allowed}
			if err := supply.checkHostPath(tc.path); (err == nil) != tc.want {
				t.Errorf("checkHostPath(%q) = %v, want it allowed: %t", tc.path, err, tc.want)
			}
		})
	}
}
