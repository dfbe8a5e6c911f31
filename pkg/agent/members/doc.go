// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package members notices when a group of pods that serve one model together has lost one of them, or got
// another in its place. An engine that is sharded over pods may hang on such a loss until a collective
// operation times out; the agents beside the engines look at one another instead, about once a second.
//
// It decides when a member counts as lost or replaced, from what the members answer about themselves: the
// id of their incarnation, and the number of the group that they belong to. It must not know Kubernetes: a
// member is a host name, and what follows from a loss is for the caller.
package members
