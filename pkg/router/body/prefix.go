// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package body

import (
	"math"

	"github.com/cespare/xxhash/v2"
)

// Depths of a prompt's prefixes, in bytes. A replica has the longest ones of its last requests in its cache.
var depths = [...]int{1 << 10, 4 << 10, 16 << 10, 64 << 10} //nolint:gochecknoglobals // a constant table

// Prefixes returns hashes of the prompt's first bytes, the shortest prefix first. Prompts with a common beginning have
// common hashes, on every router. A salt keeps the prompts of tenants apart.
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
	// bytesPerToken of English text and JSON, as OpenAI's help pages state.
	bytesPerToken = 4
	// bytesPerSound is for recordings: Whisper has 50 positions for a second, which is 8 kB of speech as MP3. An estimate.
	bytesPerSound = 160
	// defaultAnswer is the assumed length of an answer without a limit, in tokens.
	defaultAnswer = 256
	// maxAnswer bounds the weight of a limit: clients ask for more than they get.
	maxAnswer = 2048
)

// PromptTokens estimates the tokens of the prompt, with system prompts, tools and recordings.
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
