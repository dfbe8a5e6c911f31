// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestReader(t *testing.T) {
	const (
		piece = "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\":{\\\"total_tokens\\\":9}\"}}],\"usage\":null}\n\n"
		last  = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7}}\n\n"
		done  = "data: [DONE]\n\n"
	)
	cases := []struct {
		reason          string
		text            string
		isStream, strip bool
		want            string
		tokens          Tokens
	}{
		{"a plain answer", `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}`, false, false, `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}`, Tokens{1, 2}},
		{"an answer with text about usage", `{"text":"\"usage\":{\"prompt_tokens\":9}"}`, false, false, `{"text":"\"usage\":{\"prompt_tokens\":9}"}`, Tokens{}},
		{"embeddings have a total", `{"data":[0.1],"usage": {"total_tokens":5}}`, false, false, `{"data":[0.1],"usage": {"total_tokens":5}}`, Tokens{5, 0}},
		{"a stream whose client asked for the usage", piece + last + done, true, false, piece + last + done, Tokens{3, 4}},
		{"a stream whose client did not", piece + last + done, true, true, piece + done, Tokens{3, 4}},
		{"lines that end in CRLF", strings.ReplaceAll(piece+last+done, "\n", "\r\n"), true, true, strings.ReplaceAll(piece+done, "\n", "\r\n"), Tokens{3, 4}},
		{"a stream that breaks in an event", piece + last[:30], true, true, piece + last[:30], Tokens{}},
		{"the last piece has the usage, too", "data: {\"choices\":[{}],\"usage\":{\"prompt_tokens\":1}}\n\n", true, true, "data: {\"choices\":[{}],\"usage\":{\"prompt_tokens\":1}}\n\n", Tokens{1, 0}},
		{"messages have two usages", "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":8,\"output_tokens\":1}}}\n\nevent: message_delta\ndata: {\"usage\":{\"output_tokens\":6}}\n\n", true, false, "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":8,\"output_tokens\":1}}}\n\nevent: message_delta\ndata: {\"usage\":{\"output_tokens\":6}}\n\n", Tokens{8, 6}},
		{"numbers below zero pay nothing back", `{"usage":{"prompt_tokens":-5,"completion_tokens":-5}}`, false, false, `{"usage":{"prompt_tokens":-5,"completion_tokens":-5}}`, Tokens{}},
	}
	for _, c := range cases {
		for name, wrap := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "by byte": iotest.OneByteReader, "error with data": iotest.DataErrReader,
		} {
			t.Run(c.reason+", "+name, func(t *testing.T) {
				r := NewReader(io.NopCloser(wrap(strings.NewReader(c.text))), c.isStream, c.strip)
				got, err := io.ReadAll(r)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, string(got)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(c.tokens, r.Tokens()); diff != "" {
					t.Errorf("tokens (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestEventsPassAtOnce: a whole event does not wait for the next one.
func TestEventsPassAtOnce(t *testing.T) {
	from, to := io.Pipe()
	r := NewReader(from, true, true)
	go func() { _, _ = to.Write([]byte("data: {}\n\n")) }()
	buffer := make([]byte, 100)
	n, err := r.Read(buffer)
	if err != nil || string(buffer[:n]) != "data: {}\n\n" {
		t.Errorf("read %q, %v", buffer[:n], err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// FuzzPieces: the output of a stream does not depend on how it is split into pieces.
func FuzzPieces(f *testing.F) {
	f.Add("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3}}\r\n\r\ndata: x\n\n\n\r\n\r", true)
	f.Add("\r\n\r\r\n\r\n\n", false)
	f.Fuzz(func(t *testing.T, text string, strip bool) {
		read := func(from io.Reader) (string, Tokens) {
			r := NewReader(io.NopCloser(from), true, strip)
			out, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			return string(out), r.Tokens()
		}
		whole, tokens := read(strings.NewReader(text))
		pieces, same := read(iotest.OneByteReader(strings.NewReader(text)))
		if whole != pieces || tokens != same {
			t.Errorf("%q with %v at once, %q with %v by byte", whole, tokens, pieces, same)
		}
	})
}

// TestLongEventPasses: an event without an end passes and uses bounded memory.
func TestLongEventPasses(t *testing.T) {
	text := "data: " + strings.Repeat("x", 3*maxEvent)
	for _, strip := range []bool{true, false} {
		r := NewReader(io.NopCloser(strings.NewReader(text)), true, strip)
		buffer, total := make([]byte, 32<<10), 0
		for {
			n, err := r.Read(buffer)
			total += n
			if len(r.pending) > maxEvent+2*len(buffer) {
				t.Fatalf("%d bytes are held", len(r.pending))
			}
			if err != nil {
				break
			}
		}
		if total != len(text) {
			t.Errorf("%d of %d bytes passed", total, len(text))
		}
	}
}

// TestTake gives an answer in pieces of each size, as a gateway sends it. The result and the usage are those of Read.
func TestTake(t *testing.T) {
	const events = "data: {\"choices\":[{}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\ndata: [DONE]\n\nleft"
	for _, strips := range []bool{false, true} {
		for size := 1; size <= len(events); size++ {
			read := NewReader(io.NopCloser(strings.NewReader(events)), true, strips)
			want, err := io.ReadAll(read)
			if err != nil {
				t.Fatal(err)
			}
			taken, got := NewReader(nil, true, strips), ""
			for at := 0; at < len(events); at += size {
				end := min(at+size, len(events))
				got += string(taken.Take([]byte(events[at:end]), end == len(events)))
			}
			if diff := cmp.Diff(string(want), got); diff != "" || taken.Tokens() != read.Tokens() || taken.Passed() != read.Passed() {
				t.Fatalf("strips %v, %d bytes at a time: %v, want %v (-want +got):\n%s", strips, size, taken.Tokens(), read.Tokens(), diff)
			}
		}
	}
}
