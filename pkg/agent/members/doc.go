// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package members notices when a group of pods that serve one model has lost a member, or has a new one in its
// place. An engine spread over pods may hang after such a loss until a collective operation times out. Therefore
// the agents, which run next to the engines, check each other about once a second.
//
// It decides when a member counts as lost or replaced. The inputs are the members' answers: the id of their
// incarnation and the number of their group. It must not know Kubernetes: a member is a host name, and the caller
// acts on a loss.
package members
