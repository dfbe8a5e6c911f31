// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drain delays the end of a pod until its running requests are finished. The kubelet calls it as a preStop
// hook, and waits for the response before it signals the engine to end.
//
// It decides when an engine is idle, from gauges of its requests, and when waiting is pointless. It must not know
// engines: the caller names their gauges.
package drain
