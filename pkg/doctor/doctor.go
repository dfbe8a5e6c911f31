// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doctor finds faults of a cluster that affect Modelberth, from a snapshot of its objects.
//
// It decides what is a fault, how severe it is, and which command fixes it. It must not know how the objects were read,
// or how findings are shown.
package doctor

import (
	"cmp"
	"slices"
)

// Severity is how serious a finding is.
type Severity string

// The severities. An error prevents models from starting, serving or being released; a warning may do so.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Finding is one fault.
type Finding struct {
	// ID identifies the fault. It never changes.
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	// Object is the object at fault, as KIND/NAMESPACE/NAME or KIND/NAME; empty for the whole cluster.
	Object string `json:"object,omitempty"`
	// Evidence is the state of the cluster that shows the fault. Fix is a command or an instruction.
	Evidence string `json:"evidence"`
	Fix      string `json:"fix"`
}

// Examine returns the findings of all checks, errors first.
func Examine(s *Snapshot) []Finding {
	e := newExamination(s)
	for _, check := range []func(*examination){
		checkRead, checkVersion, checkDefinitions, checkKAITO, checkChoice, checkController, checkRestarts, checkLease, checkClocks,
		checkPolicies, checkPermissions, checkProvisioner, checkNodeClasses, checkMachines, checkPlugins, checkOperator, checkNodes,
		checkIsolation, checkDNS, checkWebhooks, checkClaims, checkQuotas, checkWorkspaces, checkLeftovers,
	} {
		check(e)
	}
	slices.SortStableFunc(e.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Object, b.Object))
	})
	return e.findings
}
