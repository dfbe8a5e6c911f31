// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"flag"
	"fmt"
	"math"
	"path"
)

// Spending are the administrator's limits on what may be bought. Prices are in USD per hour; 0 is none.
type Spending struct {
	// PerWorkspace, PerNamespace and Cluster are ceilings on all machines together.
	PerWorkspace, PerNamespace, Cluster float64
	// DefaultMaxHourlyPrice is for Workspaces that set none.
	DefaultMaxHourlyPrice float64
	// InstanceTypes that may be bought, as patterns of path.Match; empty means all.
	InstanceTypes []string
}

func (s *Spending) bind(flags *flag.FlagSet) {
	flags.Float64Var(&s.PerWorkspace, "spending-per-workspace", 0, "most USD per hour that the machines of one Workspace may cost; 0 is no ceiling")
	flags.Float64Var(&s.PerNamespace, "spending-per-namespace", 0, "most USD per hour that the machines of one namespace may cost; 0 is no ceiling")
	flags.Float64Var(&s.Cluster, "spending-cluster", 0, "most USD per hour that all machines together may cost; 0 is no ceiling")
	flags.Float64Var(&s.DefaultMaxHourlyPrice, "default-max-hourly-price", 0,
		"resource.placement.maxHourlyPrice of Workspaces that set none, in USD; 0 is none")
	flags.Func("allow-instance-type", "machine type that may be bought, with * for any letters; repeatable; none means all", s.addInstanceType)
}

func (s *Spending) addInstanceType(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
		return fmt.Errorf("%q is no machine type, nor a pattern such as Standard_NC*", pattern)
	}
	s.InstanceTypes = append(s.InstanceTypes, pattern)
	return nil
}

func (s *Spending) validate() []error {
	var problems []error
	for _, price := range []struct {
		flag  string
		value float64
	}{
		{"spending-per-workspace", s.PerWorkspace},
		{"spending-per-namespace", s.PerNamespace},
		{"spending-cluster", s.Cluster},
		{"default-max-hourly-price", s.DefaultMaxHourlyPrice},
	} {
		if price.value < 0 || math.IsNaN(price.value) || math.IsInf(price.value, 0) {
			problems = append(problems, fmt.Errorf("--%s is %v, it must be a price in USD per hour, or 0 for none", price.flag, price.value))
		}
	}
	return problems
}
