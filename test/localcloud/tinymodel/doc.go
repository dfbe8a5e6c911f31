// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tinymodel writes a language model that is small enough to make on the
// spot and real enough to serve: a GGUF file of the llama architecture with two
// layers of random weights, byte tokens for whatever a user types, a few words
// for what it answers, and a chat template. At temperature 0 it says the same
// nonsense to the same prompt every time, and every weight has a part in it, so
// an answer that changes means that something lost or altered bytes.
//
// Beside it there is a repository of the same shape in the files that Python libraries load, for what
// stands in for them.
//
// It decides the files' content, which is the same to the bit on every machine.
// It must not know who serves or loads it.
package tinymodel
