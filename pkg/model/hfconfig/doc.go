// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hfconfig reads the config.json of a Hugging Face repository, and the optional files next to it. It returns
// the facts for planning: the transformer's shape, its context, the format of its weights.
//
// It decides the meaning of a config's keys, and which configs cannot be planned for. The behaviour of classes beyond
// their configs is data: architectures.yaml. It must not know the source of a config, machines, engines' flags or
// Kubernetes. It does no I/O.
package hfconfig
