// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package request is the border between the API and the planner: it reads what a Workspace asks for, and
// writes a plan down as the status has it. Whoever plans for a Workspace, the controller or the command
// line, goes through it, so both say the same.
//
// It decides which fields mean what to a planner, and which Workspaces cannot be planned for. It must not
// know how a plan is made or carried out.
package request
