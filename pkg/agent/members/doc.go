// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package members detects the loss or replacement of a member in a group of pods that serve one model. After such a
// loss, an engine on several pods may hang until a collective operation times out. Therefore the agents, which run next
// to the engines, check each other about once a second.
//
// It decides when a member counts as lost or replaced. The inputs are the members' answers: the ID of their incarnation
// and the number of their group. It must not know Kubernetes: a member is a host name, and the caller acts on a loss.
package members
