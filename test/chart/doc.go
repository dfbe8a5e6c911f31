// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart tests the Helm chart without a cluster: what it renders, what it refuses, and that
// the flags which it passes are ones that the controller takes.
//
// It decides nothing. It must not know what the controller does with its flags.
package chart
