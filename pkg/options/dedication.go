// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/modelberth/modelberth/pkg/capacity/preflight"
)

// bindDedication declares when machines get the taint of their Workspace.
func (o *Controller) bindDedication(flags *flag.FlagSet) {
	flags.StringVar((*string)(&o.Dedication), "dedicated-taint", string(preflight.Auto),
		"whether to taint machines with modelberth.dev/workspace-uid, to keep other pods off them: Auto taints unless that would "+
			"keep off a DaemonSet that tolerates sku=gpu; Enabled always taints, and buys nothing while the taint would keep off "+
			"such a DaemonSet; Disabled never taints")
	flags.Func("daemonset-namespace", "namespace whose DaemonSets count as device plugins and for --dedicated-taint; name only "+
		"namespaces in which administrators alone may write; repeatable; a trailing * matches a prefix; default: none", o.addDaemonSetNamespace)
}

func (o *Controller) addDaemonSetNamespace(v string) error {
	name, isPrefix := strings.CutSuffix(v, "*")
	if problems := validation.IsDNS1123Label(strings.TrimSuffix(name, "-")); len(problems) > 0 && (name != "" || !isPrefix) {
		return fmt.Errorf("%q is neither the name of a namespace nor the beginning of one with *", v)
	}
	o.DaemonSetNamespaces = append(o.DaemonSetNamespaces, v)
	return nil
}

func (o *Controller) validateDedication() []error {
	if slices.Contains(preflight.Dedications(), o.Dedication) {
		return nil
	}
	return []error{fmt.Errorf("--dedicated-taint is %q: it must be one of %v", o.Dedication, preflight.Dedications())}
}
