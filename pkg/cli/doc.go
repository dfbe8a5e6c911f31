// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli implements the command kubectl-berth. It reads manifests and flags, plans with the controller's packages,
// and prints the answer for a person at a terminal or for a program. For Workspaces in a cluster, it prints their
// state, connects to their endpoints, and edits their specs, with the rights of the user.
//
// It decides on the form of requests and answers. The packages below decide on fit, cost and rank. It must not know the
// way from a plan to machines and pods. It reaches a cluster only through Objects and Pods. It prints the state as
// those objects record it, and never derives state itself.
package cli
