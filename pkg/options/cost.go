// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"flag"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// mostCostLabels bounds the labels to group costs by, and thereby the size of the ledger.
const mostCostLabels = 5

// shortestCostInterval is the shortest allowed interval between writes of the cost ledger.
const shortestCostInterval = time.Minute

// Cost has the settings of the cost ledger.
type Cost struct {
	// Namespace is the namespace of the ledger's ConfigMaps; empty means no ledger.
	Namespace string
	// Name is the prefix of the names of the ledger's ConfigMaps.
	Name string
	// Interval is the time between two writes of the same ConfigMap.
	Interval time.Duration
	// Labels are the labels of Workspaces to group costs by.
	Labels []string
	// Publish copies each namespace's part of the ledger into that namespace.
	Publish bool
	// CountTokens makes the controller read the engines' token counters.
	CountTokens bool
	// MetricsByWorkspace adds the names of Workspaces to metrics.
	MetricsByWorkspace bool
}

func (c *Cost) bind(flags *flag.FlagSet) {
	flags.StringVar(&c.Namespace, "cost-namespace", "", "namespace for the ledger of machine time and cost; default: no ledger")
	flags.StringVar(&c.Name, "cost-name", "modelberth-cost", "prefix of the names of the ledger's ConfigMaps, for example NAME-0")
	flags.DurationVar(&c.Interval, "cost-interval", 5*time.Minute,
		"shortest time between two writes of one ConfigMap of the ledger while machines cost money; the beginning and the end of "+
			"a machine are written within seconds")
	flags.Func("cost-label", "label of Workspaces to group costs by, for example team; repeatable", func(name string) error {
		if problems := validation.IsQualifiedName(name); len(problems) > 0 {
			return fmt.Errorf("%q is not the key of a label: %s", name, strings.Join(problems, "; "))
		}
		c.Labels = append(c.Labels, name)
		return nil
	})
	flags.BoolVar(&c.Publish, "cost-publish", true,
		"copy the costs of each namespace into the ConfigMap modelberth-cost of that namespace, for everyone with permission to read ConfigMaps there")
	flags.BoolVar(&c.CountTokens, "cost-count-tokens", true, "count tokens: read the engines' counters once in each --cost-interval")
	flags.BoolVar(&c.MetricsByWorkspace, "cost-metrics-by-workspace", false,
		"label the cost metrics with the names of Workspaces; each Workspace then adds a dozen series")
}

func (c *Cost) validate() []error {
	if c.Namespace == "" {
		return nil
	}
	var problems []error
	if c.Interval < shortestCostInterval {
		problems = append(problems, fmt.Errorf("--cost-interval is %s: it must be at least %s", c.Interval, shortestCostInterval))
	}
	if len(c.Labels) > mostCostLabels {
		problems = append(problems, fmt.Errorf("--cost-label is set %d times, but at most %d labels are allowed", len(c.Labels), mostCostLabels))
	}
	if len(validation.IsDNS1123Subdomain(c.Name)) > 0 {
		problems = append(problems, fmt.Errorf("--cost-name is %q: it must be the name of a ConfigMap", c.Name))
	}
	return problems
}
