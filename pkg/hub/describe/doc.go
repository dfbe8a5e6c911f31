// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package describe reads a model's description from its repository on a hub: the facts for planning, the commit,
// the licence, and the size of the weights.
//
// It decides which files of a repository to read and in which order, the result if some are missing, and the
// message if nothing can be known. It must not know the hub's protocol, which is package hub's, nor the meaning of
// a config's keys, which is package hfconfig's. It is separate from package hub to keep it out of the agent, which
// only downloads.
package describe
