// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package resume

import "sync/atomic"

// Memory limits the total size of the texts of all streams that can be continued.
type Memory struct {
	most int64
	used atomic.Int64
	// full is called for each stream that cannot be continued for lack of memory.
	full func()
}

// NewMemory returns an empty memory with a limit in bytes.
func NewMemory(most int64, full func()) *Memory { return &Memory{most: most, full: full} }

// Used returns the size of all texts in bytes.
func (m *Memory) Used() int64 { return m.used.Load() }

// remember stores text that the client has received. It returns a problem if there is too much text.
func (s *Stream) remember(text string) (problem string) {
	s.text.WriteString(text)
	grown := s.text.Cap() - s.held
	s.held += grown
	switch used := s.memory.used.Add(int64(grown)); {
	case s.text.Len() > maxText:
		return "the answer is too long"
	case grown > 0 && used > s.memory.most:
		s.memory.full()
		return "the router's memory for the answers of streams is full"
	}
	return ""
}

// forget frees the text of an answer. It is not needed once another replica continues the answer, or none can.
func (s *Stream) forget() {
	s.memory.used.Add(-int64(s.held))
	s.text.Reset()
	s.held = 0
}
