// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/pkg/workload"
)

// commonRDMA is the resource for --rdma without a name. The chart uses it as its example.
const commonRDMA = "rdma/hca_shared_devices_a"

// rdmaFlag is a resource for RDMA between machines, as name or name=count.
type rdmaFlag workload.RDMA

// String returns the resource in the form of the flag.
func (r *rdmaFlag) String() string {
	if r.Count <= 1 {
		return r.Resource
	}
	return fmt.Sprintf("%s=%d", r.Resource, r.Count)
}

// Type returns the name of the flag's type for the help.
func (r *rdmaFlag) Type() string { return "resource" }

// Set parses the flag.
func (r *rdmaFlag) Set(text string) error {
	switch text {
	case "false":
		*r = rdmaFlag{}
		return nil
	case "true": // the flag without a value
		text = commonRDMA
	}
	name, count, isCounted := strings.Cut(text, "=")
	out := rdmaFlag{Resource: name, Count: 1}
	if isCounted {
		var err error
		if out.Count, err = strconv.Atoi(count); err != nil || out.Count < 1 {
			return errors.New("write name or name=count, with a count of at least 1")
		}
	}
	*r = out
	return nil
}
