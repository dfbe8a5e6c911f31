// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"flag"
	"fmt"
	"slices"

	"github.com/modelberth/modelberth/pkg/capacity/preflight"
)

// bindDedication declares when machines get the taint of their Workspace.
func (o *Controller) bindDedication(flags *flag.FlagSet) {
	flags.StringVar((*string)(&o.Dedication), "dedicated-taint", string(preflight.Auto),
		"when to taint machines with modelberth.dev/workspace-uid, to keep other pods off them: Auto (unless a DaemonSet "+
			"tolerates sku=gpu and not this taint), Enabled (buy nothing while there is such a DaemonSet) or Disabled")
}

func (o *Controller) validateDedication() []error {
	if slices.Contains(preflight.Dedications(), o.Dedication) {
		return nil
	}
	return []error{fmt.Errorf("--dedicated-taint is %q: it must be one of %v", o.Dedication, preflight.Dedications())}
}
