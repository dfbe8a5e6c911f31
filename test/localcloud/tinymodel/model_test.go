// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package tinymodel

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The file is named by its checksum elsewhere, so a change here is a new model:
// state the new value, and load the file in a real server before.
func TestBytesAreAlwaysTheSame(t *testing.T) {
	type facts struct {
		SHA256 string
		Size   int
	}
	data := Bytes()
	sum := sha256.Sum256(data)
	got := facts{hex.EncodeToString(sum[:]), len(data)}
	want := facts{"fc7faf14abb919a5c6212f41a2bd160702420edf31dd6cb03f0df57f8489c10b", 436832}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("model file (-want +got):\n%s", diff)
	}
	if !bytes.Equal(data, Bytes()) {
		t.Error("a second call makes another file")
	}
}

func TestHeader(t *testing.T) {
	data := Bytes()
	type header struct {
		Magic          [4]byte
		Version        uint32
		Tensors, Pairs uint64
	}
	var got header
	if err := binary.Read(bytes.NewReader(data), binary.LittleEndian, &got); err != nil {
		t.Fatal(err)
	}
	// Three tensors of the whole, nine of each layer.
	want := header{[4]byte{'G', 'G', 'U', 'F'}, 3, 3 + 9*Layers, 24}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
}

func TestHalf(t *testing.T) {
	for _, tc := range []struct {
		reason string
		k      int32
		shift  int
		want   uint16
	}{
		{"zero", 0, 10, 0x0000},
		{"one", 1024, 10, 0x3c00},
		{"minus two", -2, 0, 0xc000},
		{"the largest weight", 1023, 10, 0x3bfe},
		{"the smallest weight", -1, 12, 0x8c00},
		{"one third of the bits", 0x555, 10, 0x3d55},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if got := half(tc.k, tc.shift); got != tc.want {
				t.Errorf("half(%d, %d) = %#04x, want %#04x", tc.k, tc.shift, got, tc.want)
			}
		})
	}
}
