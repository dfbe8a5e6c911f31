// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package args reads the command line of vllm serve as the pinned release does: Python's argparse with the
// additions of vLLM's FlexibleArgumentParser (underscores for dashes, dotted keys of JSON flags).
//
// It decides which flags there are and which values have the right form. It must not know what a flag
// does, nor the table that the product renders from.
package args
