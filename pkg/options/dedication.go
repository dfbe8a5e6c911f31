// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"flag"
	"fmt"
	"slices"

	"github.com/modelberth/modelberth/pkg/capacity/gpuplugin"
)

// bindDedication declares when machines have the taint of their Workspace.
func (o *Controller) bindDedication(flags *flag.FlagSet) {
	flags.StringVar((*string)(&o.Dedication), "dedicated-taint", string(gpuplugin.Auto),
		"when to taint machines with modelberth.dev/workspace-uid, which keeps pods of others off them: Auto (unless a DaemonSet "+
			"tolerates sku=gpu and not this taint), Enabled (buy nothing while there is such a DaemonSet) or Disabled")
}

func (o *Controller) validateDedication() []error {
	if slices.Contains(gpuplugin.Dedications(), o.Dedication) {
		return nil
	}
	return []error{fmt.Errorf("--dedicated-taint is %q, it must be one of %v", o.Dedication, gpuplugin.Dedications())}
}
