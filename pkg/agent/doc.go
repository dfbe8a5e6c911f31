// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent fetches a model's files onto the engine's volume, and reports to the kubelet when they are complete.
// The packages members and drain have the agent's other two duties. This package combines all three.
//
// It decides which ranges to fetch, when a file counts as verified, when a failure is permanent, and which message the
// user reads. A file gets its final name only after its checksum matched. Until then, it is NAME.partial.
//
// It must not know Kubernetes. Its inputs are flags, a directory, a hub and a clock. Its outputs are an HTTP port, an
// exit code and a termination message. Only that message names a field of the Workspace, modelAccessSecret, because
// users of Workspaces read the message. The package must not know models or engines: a file is bytes with a checksum.
package agent
