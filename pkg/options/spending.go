// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"path"
)

// Default ceilings in USD per hour. They prevent accidents without stopping a team: in most regions, they allow one
// machine with 8 H100 (98.32 on Azure in eastus, 55.04 on AWS in us-east-1).
const (
	DefaultPerWorkspace = 150
	DefaultPerNamespace = 300
	DefaultCluster      = 600
)

// Spending has the administrator's limits on purchases. Prices are in USD per hour.
type Spending struct {
	// PerWorkspace, PerNamespace and Cluster are ceilings on all machines together. Unlimited lifts all three.
	PerWorkspace, PerNamespace, Cluster float64
	Unlimited                           bool
	// DefaultMaxHourlyPrice is for Workspaces without their own limit.
	DefaultMaxHourlyPrice float64
	// InstanceTypes are the allowed machine types, as patterns of path.Match; empty means all.
	InstanceTypes []string
}

func (s *Spending) bind(flags *flag.FlagSet) {
	flags.Float64Var(&s.PerWorkspace, "spending-per-workspace", DefaultPerWorkspace,
		"ceiling for the machines of one Workspace, in USD per hour")
	flags.Float64Var(&s.PerNamespace, "spending-per-namespace", DefaultPerNamespace,
		"ceiling for the machines of one namespace, in USD per hour; the namespace's annotation modelberth.dev/spending-ceiling "+
			"overrides this ceiling")
	flags.Float64Var(&s.Cluster, "spending-cluster", DefaultCluster, "ceiling for all machines together, in USD per hour")
	flags.BoolVar(&s.Unlimited, "spending-unlimited", false, "lift the three ceilings")
	flags.Float64Var(&s.DefaultMaxHourlyPrice, "default-max-hourly-price", 0,
		"default for resource.placement.maxHourlyPrice, in USD per hour; 0 means no limit")
	flags.Func(flagInstanceType, "machine type that may be bought; * matches any characters; repeatable; default: all", s.addInstanceType)
}

func (s *Spending) addInstanceType(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
		return errors.New("it must be a machine type, or a pattern such as Standard_NC*")
	}
	s.InstanceTypes = append(s.InstanceTypes, pattern)
	return nil
}

func (s *Spending) validate() []error {
	var problems []error
	for _, ceiling := range []struct {
		flag  string
		value float64
	}{
		{"spending-per-workspace", s.PerWorkspace},
		{"spending-per-namespace", s.PerNamespace},
		{"spending-cluster", s.Cluster},
	} {
		if ceiling.value <= 0 || math.IsNaN(ceiling.value) || math.IsInf(ceiling.value, 0) {
			problems = append(problems, fmt.Errorf("--%s is %v: it must be a price above 0 in USD per hour; --spending-unlimited lifts all ceilings",
				ceiling.flag, ceiling.value))
		}
	}
	if price := s.DefaultMaxHourlyPrice; price < 0 || math.IsNaN(price) || math.IsInf(price, 0) {
		problems = append(problems, fmt.Errorf("--default-max-hourly-price is %v: it must be a price in USD per hour, or 0 for none", price))
	}
	return problems
}

// Ceilings returns the ceilings of one Workspace, of one namespace and of the cluster; 0 means none.
func (s *Spending) Ceilings() (perWorkspace, perNamespace, cluster float64) {
	if s.Unlimited {
		return 0, 0, 0
	}
	return s.PerWorkspace, s.PerNamespace, s.Cluster
}
