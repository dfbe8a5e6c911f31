// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart tests the Helm chart without a cluster: its objects, its refusals, and the agreement of its flags with
// the controller's.
//
// It decides nothing. It must not know the meaning of the flags.
package chart
