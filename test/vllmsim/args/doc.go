// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package args reads the command line of vllm serve as the pinned release does: Python's argparse with the
// additions of vLLM's FlexibleArgumentParser (underscores for dashes, dotted keys of JSON flags).
//
// It decides which flags exist and which values are valid. It must not know the effect of a flag, or the product's
// table of flags.
package args
