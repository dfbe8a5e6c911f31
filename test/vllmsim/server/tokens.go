// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// tokenizer cuts text into words and single other characters. Real ones cut finer; their numbers for known
// words are kept.
type tokenizer struct {
	ids   map[string]int
	size  int
	piece *regexp.Regexp
}

// mark stands for a blank in vocabularies.
const mark = "\u2581"

func newTokenizer(ids map[string]int, size int) tokenizer {
	return tokenizer{ids: ids, size: max(size, 1), piece: regexp.MustCompile(` ?[\p{L}\p{N}]+|\s|.`)}
}

func (t tokenizer) pieces(text string) []string { return t.piece.FindAllString(text, -1) }

func (t tokenizer) encode(text string) []int {
	ids := []int{}
	for _, piece := range t.pieces(text) {
		if id, known := t.ids[strings.Replace(piece, " ", mark, 1)]; known {
			ids = append(ids, id)
			continue
		}
		h := fnv.New32a()
		_, _ = h.Write([]byte(piece))
		ids = append(ids, int(h.Sum32())%t.size)
	}
	return ids
}

// words returns the words of answers: the vocabulary's stand-alone ones, or a few of ours.
func (t tokenizer) words() []string {
	var words []string
	word := regexp.MustCompile(`^` + mark + `([a-z]{2,12})$`)
	for _, token := range slices.Sorted(maps.Keys(t.ids)) {
		if match := word.FindStringSubmatch(token); match != nil {
			words = append(words, match[1])
		}
	}
	if len(words) < 2 {
		return []string{"the", "harbour", "is", "calm", "and", "quiet", "ships", "moor", "at", "dawn"}
	}
	return words
}
