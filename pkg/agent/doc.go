// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent brings a model's files onto the volume that the inference
// engine reads, and tells the kubelet when they are there. Packages members and
// drain below it are the agent's other two duties; here they are put together.
//
// It decides what is still to fetch, in which ranges, when a file counts as
// verified, when trying again has become pointless, and which sentence the
// user then reads. A file appears under its own name only after its checksum
// matched; everything before that lives beside it as NAME.partial.
//
// It must not know Kubernetes: it sees flags, a directory, a hub and a clock,
// and speaks through an HTTP port, an exit code and a termination message (whose
// words are for a Workspace's user, so they name the field that holds the token).
// Nor does it know models or engines: a file is bytes with a checksum.
package agent
