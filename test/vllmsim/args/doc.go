// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package args reads the command line of vllm serve as the pinned release does: Python's argparse with the
// additions of vLLM's FlexibleArgumentParser (underscores for dashes, dotted keys of JSON flags).
//
// It decides the existing flags and the well-formed values. It must not know a flag's effect, nor the product's table
// of flags.
package args
