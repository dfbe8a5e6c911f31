// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/hub"
)

func TestStateRoundTrip(t *testing.T) {
	want := state{
		Size: 100, Digest: hub.Digest{Algorithm: hub.SHA256, Hex: "ab"},
		Done: ranges{{Start: 0, End: 10}, {Start: 20, End: 100}},
	}
	data, err := encodeState(want)
	if err != nil {
		t.Fatal(err)
	}
	if text := `{"version":1,"size":100,"digest":{"algorithm":"sha256","hex":"ab"},"done":[[0,10],[20,100]]}`; string(data) != text {
		t.Errorf("encodeState() = %s, want %s: an older agent's file must stay readable", data, text)
	}
	got, err := decodeState(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decodeState() (-want +got):\n%s", diff)
	}
}

func TestDecodeStateRefuses(t *testing.T) {
	const digest = `"digest":{"algorithm":"sha256","hex":"ab"}`
	for _, tc := range []struct{ reason, data string }{
		{"nothing", ``},
		{"half a record", `{"version":1,"size":100,` + digest},
		{"two records", `{"version":1,"size":1,` + digest + `,"done":[]}{}`},
		{"another version", `{"version":2,"size":100,` + digest + `,"done":[]}`},
		{"an unknown field", `{"version":1,"size":100,` + digest + `,"done":[],"x":1}`},
		{"no digest", `{"version":1,"size":100,"done":[]}`},
		{"a negative size", `{"version":1,"size":-1,` + digest + `,"done":[]}`},
		{"past the end", `{"version":1,"size":100,` + digest + `,"done":[[0,101]]}`},
		{"backwards", `{"version":1,"size":100,` + digest + `,"done":[[10,5]]}`},
		{"negative", `{"version":1,"size":100,` + digest + `,"done":[[-5,5]]}`},
		{"overlapping", `{"version":1,"size":100,` + digest + `,"done":[[0,5],[4,9]]}`},
		{"touching", `{"version":1,"size":100,` + digest + `,"done":[[0,5],[5,9]]}`},
		{"overflowing", `{"version":1,"size":100,` + digest + `,"done":[[9223372036854775807,-9223372036854775808]]}`},
		{"huge", `{"version":1,"size":100,` + digest + `,"done":[` + strings.Repeat(" ", maxRecord) + `]}`},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if s, err := decodeState([]byte(tc.data)); err == nil {
				t.Errorf("decodeState() = %+v, want an error", s)
			}
		})
	}
}

// Decoding arbitrary bytes never panics. An accepted record is a set of ranges within the file, and survives a round
// trip.
func FuzzDecodeState(f *testing.F) {
	f.Add([]byte(`{"version":1,"size":100,"digest":{"algorithm":"sha256","hex":"ab"},"done":[[0,10],[20,100]]}`))
	f.Add([]byte(`{"version":1,"size":0,"digest":{"algorithm":"git-blob","hex":"00"},"done":[]}`))
	f.Add([]byte(`{"version":1,"size":9223372036854775807,"digest":{"hex":"1"},"done":[[1,9223372036854775807]]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeState(data)
		if err != nil {
			return
		}
		if sum := s.Done.sum(); sum < 0 || sum > s.Size || s.Done.prefix() > s.Size || s.Done.end() > s.Size {
			t.Errorf("ranges %v do not fit a file of %d bytes", s.Done, s.Size)
		}
		again, err := encodeState(s)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeState(again)
		if err != nil {
			t.Fatalf("decodeState(%s) = %v", again, err)
		}
		if diff := cmp.Diff(s, back); diff != "" {
			t.Errorf("written and read again (-want +got):\n%s", diff)
		}
	})
}
