// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tinymodel writes a language model small enough to make on the spot and real enough to serve: a GGUF file of
// the llama architecture with two layers of random weights, byte tokens for any input, a few words for the answers, and
// a chat template. At temperature 0, it gives the same nonsense to the same prompt every time. Every weight affects the
// answer, so a changed answer means lost or altered bytes.
//
// Beside it there is a repository of the same shape in the file formats of Python libraries, for their stand-ins.
//
// It decides the files' content, the same to the bit on every machine. It must not know the servers and loaders of the
// files.
package tinymodel
