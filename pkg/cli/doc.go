// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command kubectl-berth: it reads manifests and flags, has the planner decide, and
// words the answer for a person at a terminal or for a program. For Workspaces in a cluster it shows what
// their objects say, talks to their endpoints, and edits their specs, with the rights of whoever runs it.
//
// It decides how things are asked for and shown. What fits, what it costs and which is best it asks the
// packages that decide; it must not know how a plan is carried out. It reaches a cluster only through
// Objects and Pods: an object there says what is true, and nothing here works it out anew.
package cli
