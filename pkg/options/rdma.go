// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// RDMA is a device plugin's resource for RDMA between machines, with the number in each pod's request. Its text is
// name=count, or only the name for a count of 1.
type RDMA struct {
	// Resource is empty if pods request none.
	Resource string
	Count    int
}

// String returns the text of the flag.
func (r *RDMA) String() string {
	if r.Resource == "" {
		return ""
	}
	return fmt.Sprintf("%s=%d", r.Resource, r.Count)
}

// Set parses the text of the flag.
func (r *RDMA) Set(text string) error {
	name, number, isCounted := strings.Cut(text, "=")
	count := 1
	if isCounted {
		var err error
		if count, err = strconv.Atoi(number); err != nil || count < 1 {
			return fmt.Errorf("%q requests %q of %s: it must be a count of at least 1", text, number, name)
		}
	}
	if problems := validation.IsQualifiedName(name); len(problems) > 0 || !strings.Contains(name, "/") {
		return fmt.Errorf("%q does not name an extended resource, for example rdma/hca_shared_devices_a", name)
	}
	r.Resource, r.Count = name, count
	return nil
}
