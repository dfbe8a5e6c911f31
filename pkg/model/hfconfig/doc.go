// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hfconfig reads the config.json of a Hugging Face repository, and the files that may lie beside
// it, into the facts that planning needs: the transformer's shape, its context, the format of its weights.
//
// It decides which key of a config means what, and which configs cannot be planned for. What the classes
// behind a model_type do without saying so in the config is data: architectures.yaml. The package must not
// know where a config comes from, nor machines, engines' flags or Kubernetes; it does no I/O.
package hfconfig
