// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"github.com/modelberth/modelberth/pkg/planning"
)

// localDisk returns the size of the local disks of a machine type, in GiB; 0 if the catalogue lacks it.
func localDisk(known planning.Catalog) func(string) float64 {
	return func(instanceType string) float64 {
		machine, err := known.ResolveSKU(instanceType)
		if err != nil {
			return 0
		}
		return machine.LocalDiskGiB
	}
}
