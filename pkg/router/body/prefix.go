// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package body

import (
	"math"

	"github.com/cespare/xxhash/v2"
)

// depths are the lengths of the prefixes that Prefixes hashes, in bytes.
var depths = [...]int{1 << 10, 4 << 10, 16 << 10, 64 << 10} //nolint:gochecknoglobals // a constant table

// Prefixes returns hashes of the prompt's first bytes, the shortest prefix first. Prompts with the same beginning have
// the same hashes on every router. The salt keeps the prompts of tenants apart.
func (f *Fields) Prefixes(salt string) []uint64 {
	out := make([]uint64, 0, len(depths))
	var digest xxhash.Digest
	digest.Reset()
	_, _ = digest.WriteString(salt)
	last := 0
	for _, depth := range depths {
		if len(f.Prompt) < depth {
			break
		}
		_, _ = digest.Write(f.Prompt[last:depth])
		last = depth
		out = append(out, digest.Sum64())
	}
	return out
}

const (
	// bytesPerToken is the average for English text and JSON, according to OpenAI's help pages.
	bytesPerToken = 4
	// bytesPerSound is the estimated bytes of audio per token: Whisper has 50 positions per second, and a second of speech
	// is 8 kB as MP3.
	bytesPerSound = 160
	// defaultAnswer is the assumed length of an answer without a limit, in tokens.
	defaultAnswer = 256
	// maxAnswer limits how much a client's own limit counts, in tokens: clients set limits far above the answers that they
	// get.
	maxAnswer = 2048
)

// PromptTokens estimates the tokens of the prompt, including system prompts, tools and audio.
func (f *Fields) PromptTokens() int {
	return min((len(f.Prompt)+f.Other)/bytesPerToken+f.Sound/bytesPerSound, math.MaxInt32)
}

// Tokens estimates the tokens of the request and its answer.
func (f *Fields) Tokens() int {
	answer := defaultAnswer
	if f.MaxTokens > 0 {
		answer = min(f.MaxTokens, maxAnswer)
	}
	return f.PromptTokens() + answer
}
