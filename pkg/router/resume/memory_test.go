// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package resume

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func plenty() *Memory { return NewMemory(1<<30, func() {}) }

// TestMemory: if the memory is full, a stream still passes, but is not continued. Other streams, and later ones, are.
func TestMemory(t *testing.T) {
	event := func(text string) string {
		return `data: {"choices":[{"index":0,"delta":{"content":"` + text + `"}}]}` + "\n\n"
	}
	const full = "the router's memory for the answers of streams is full"
	short, long := event("Hi"), event(strings.Repeat("x", 100<<10))
	cases := []struct {
		reason  string
		most    int64
		others  int64 // bytes of other streams
		events  []string
		problem string
		isFull  bool
	}{
		{"within the memory", 1 << 20, 0, []string{short, long}, "", false},
		{"others leave room", 1 << 20, 1 << 19, []string{short, long}, "", false},
		{"others have it all", 1 << 20, 1 << 20, []string{short, long}, full, true},
		{"the text outgrows what others leave", 1 << 20, 1<<20 - 1<<10, []string{short, short, long, long}, full, true},
		{"others have it all, but there is no text", 1 << 20, 1 << 20, []string{event("")}, "", false},
		{"the text outgrows the bound of a stream", 1 << 30, 0, []string{long, long, long, short}, "the answer is too long", false},
		{"the answer cannot be continued", 1 << 20, 0, []string{long, event(`\ufffd`), long}, "an event of the answer ends in the middle of a character", false},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			isFull := 0
			memory := NewMemory(c.most, func() { isFull++ })
			memory.used.Store(c.others)
			whole := strings.Join(c.events, "")
			problem := ""
			again := func([]byte) (io.ReadCloser, error) {
				if memory.Used() != c.others {
					t.Errorf("%d bytes are counted when the text is on its way to the other replica, want %d", memory.Used(), c.others)
				}
				return io.NopCloser(strings.NewReader("data: [DONE]\n\n")), nil
			}
			largest := int64(0)
			from := io.MultiReader(strings.NewReader(whole), observe(func() { largest = memory.Used() }), iotest.ErrReader(io.ErrUnexpectedEOF))
			s := NewStream(New(Chat, []byte(bodyOf(Chat, 0))), memory, io.NopCloser(from), again, func(lost *LostError) []byte {
				if lost != nil {
					problem = lost.Problem
				}
				return nil
			})
			got, err := io.ReadAll(s)
			if !strings.HasPrefix(string(got), whole) || problem != c.problem || err != nil || (isFull == 1) != c.isFull {
				t.Errorf("%d bytes of %d pass, the problem is %q, want %q; full %d times, %v", len(got), len(whole), problem, c.problem, isFull, err)
			}
			if kept := largest > c.others; kept != (c.problem == "" && c.events[0] != event("")) {
				t.Errorf("%d bytes are counted before the end, %d of them of others", largest, c.others)
			}
			if err := errors.Join(s.Close(), s.Close()); err != nil || memory.Used() != c.others {
				t.Errorf("%d bytes are left, want %d; %v", memory.Used(), c.others, err)
			}
		})
	}
}

// TestMemoryOfClientThatGoes: a stream that is closed before its end frees its memory.
func TestMemoryOfClientThatGoes(t *testing.T) {
	memory := plenty()
	text := `data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}` + "\n\n"
	s := NewStream(New(Chat, []byte(bodyOf(Chat, 0))), memory, io.NopCloser(strings.NewReader(text)), nil, nil)
	if _, err := s.Read(make([]byte, 1)); err != nil || memory.Used() < int64(len("Hi")) {
		t.Fatalf("%d bytes are counted, %v", memory.Used(), err)
	}
	if err := s.Close(); err != nil || memory.Used() != 0 {
		t.Errorf("%d bytes are left, %v", memory.Used(), err)
	}
}

// observe is a reader that calls a function and returns no text.
type observe func()

func (o observe) Read([]byte) (int, error) {
	o()
	return 0, io.EOF
}

// pieces returns a body that arrives in these reads. An empty piece breaks the connection. The last piece arrives
// together with the end.
func pieces(of []string) io.ReadCloser {
	readers := []io.Reader{}
	for _, text := range of {
		if text == "" {
			readers = append(readers, iotest.ErrReader(io.ErrUnexpectedEOF))
		}
		readers = append(readers, iotest.DataErrReader(strings.NewReader(text)))
	}
	return io.NopCloser(io.MultiReader(readers...))
}
