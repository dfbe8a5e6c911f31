// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package request is the border between the API and the planner: it reads a Workspace's request, and writes a plan
// in the status's form. The controller and the command line both use it, so their results agree.
//
// It decides the meaning of fields for a planner, and which Workspaces cannot be planned. It must not know how a
// plan is made or executed.
package request
