// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command kubectl-berth: it reads manifests and flags, has the planner decide, and
// words the answer for a person at a terminal or for a program.
//
// It decides how things are asked for and shown. What fits, what it costs and which is best it asks the
// packages that decide; it must not know how a plan is carried out.
package cli
