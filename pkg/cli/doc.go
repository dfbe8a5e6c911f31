// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command kubectl-berth. It reads manifests and flags, plans with the controller's pipeline, and
// prints the result for a terminal or as data. For Workspaces in a cluster it shows their objects, talks to their
// endpoints and edits their specs, with the user's rights.
//
// It decides about flags, formats and words. The planner decides about fit, price and choice; this package must not
// know how a plan is carried out. It reaches a cluster only through Objects and Pods, and shows their state without a
// judgement of its own.
package cli
