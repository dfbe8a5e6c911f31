// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package describe says what a repository on a hub tells of its model: the facts that planning needs, at
// which commit, under which licence, and how large the weights are.
//
// It decides which of a repository's files are asked and in which order, what is known where some are
// missing, and what a person reads when nothing can be known. It must not know the hub's wire, which is
// package hub's, nor what the keys of a config mean, which is package hfconfig's. It is apart from package
// hub so that the agent, which only downloads, does not carry it.
package describe
