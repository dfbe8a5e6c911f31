// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drain holds the end of a pod back until the answers under way in it are finished. The kubelet asks
// before it tells the engine to end, and waits for the answer.
//
// It decides when an engine is idle, from gauges of its requests, and when waiting is pointless. It must not know
// engines: the caller names their gauges.
package drain
