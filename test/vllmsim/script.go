// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A script is rules apart from each other by semicolons:
//
//	[rank=N] WHEN ACTION [once] [| LAST WORDS]
//
// WHEN is start, load, ready or ready+DURATION, or request=N for the N-th generation. ACTION is exit=CODE, kill (as
// by the kernel) or hang: before ready, the process goes no further; afterwards the engine computes nothing while the
// server answers requests without need of an engine. Once leaves a file in the cache directory, so the next start
// goes well. The last words go to the error output.
//
//	rank=1 ready+2s kill once; request=3 exit=1 | RuntimeError: CUDA error: an illegal memory access was encountered
type rule struct {
	rank  int
	when  string
	after time.Duration
	// request is the number of the generation, from 1.
	request int64
	action  string
	code    int
	once    bool
	words   string
}

const anyRank = -1

func parseScript(text string) ([]rule, error) {
	var rules []rule
	for part := range strings.SplitSeq(text, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		r, err := parseRule(part)
		if err != nil {
			return nil, fmt.Errorf("vllmsim: VLLMSIM_SCRIPT: rule %q: %w", strings.TrimSpace(part), err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func parseRule(text string) (rule, error) {
	r := rule{rank: anyRank}
	head, words, _ := strings.Cut(text, "|")
	r.words = strings.TrimSpace(words)
	for field := range strings.FieldsSeq(head) {
		if err := r.add(field); err != nil {
			return r, err
		}
	}
	if r.when == "" || r.action == "" {
		return r, errors.New("it needs a time and an action")
	}
	return r, nil
}

func (r *rule) add(field string) error {
	name, value, _ := strings.Cut(field, "=")
	var err error
	switch name {
	case "rank":
		r.rank, err = strconv.Atoi(value)
	case "request":
		r.when = name
		r.request, err = strconv.ParseInt(value, 10, 64)
	case "exit":
		r.action = name
		r.code, err = strconv.Atoi(value)
	case "start", "load", "ready":
		r.when = name
	case "hang", "kill":
		r.action = name
	case "once":
		r.once = true
	default:
		delay, found := strings.CutPrefix(field, "ready+")
		if !found {
			return fmt.Errorf("%q is not a time, an action or a rank", field)
		}
		r.when = "ready"
		r.after, err = time.ParseDuration(delay)
	}
	if err != nil {
		return fmt.Errorf("%q: %w", field, err)
	}
	return nil
}

// script is the rules of one process.
type script struct {
	mu    sync.Mutex
	rules []rule
	rank  int
	// dir holds the marks of rules with once.
	dir string
}

// take returns the first rule for a moment, unless it has happened and happens once.
func (s *script) take(when string, request int64) (rule, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range s.rules {
		if r.when != when || r.request != request || (r.rank != anyRank && r.rank != s.rank) {
			continue
		}
		if !r.once {
			return r, true
		}
		file, err := os.OpenFile(filepath.Join(s.dir, fmt.Sprintf("vllmsim-%d-%d", s.rank, i)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			_ = file.Close()
			return r, true
		}
	}
	return rule{}, false
}
