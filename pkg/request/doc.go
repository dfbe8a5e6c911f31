// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package request translates between the API and the planner. It turns a Workspace into a planner's request, and a plan
// into a status. The controller and the command line both use it, so their results agree.
//
// It decides the meaning of fields for the planner, and which Workspaces it cannot plan for. It must not know how a
// plan is made or executed.
package request
