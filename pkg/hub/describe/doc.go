// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package describe reads a model's description from its repository on a hub: the facts for planning, the commit,
// the licence, and the size of the weights.
//
// It decides which files of a repository to read and in which order, the result if some are missing, and the message if
// there is no result. It must not know the hub's protocol (package hub) or the meaning of a config's keys (package
// hfconfig). It is separate from package hub, so that the agent, which only downloads, does not contain it.
package describe
