// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package tinymodel

import (
	"bytes"
	"encoding/binary"
	"math"
)

// Value types of the GGUF format, version 3.
const (
	typeUint32  = 4
	typeInt32   = 5
	typeFloat32 = 6
	typeBool    = 7
	typeString  = 8
	typeArray   = 9
)

// Tensor types of ggml.
const (
	tensorF32 = 0
	tensorF16 = 1
)

const (
	ggufMagic   = "GGUF"
	ggufVersion = 3
	alignment   = 32
)

// writer builds a GGUF file: header, key-value pairs, tensor directory, data.
type writer struct {
	pairs     bytes.Buffer
	pairCount uint64
	directory bytes.Buffer
	tensors   uint64
	data      bytes.Buffer
}

func put(b *bytes.Buffer, v any) {
	// A bytes.Buffer does not fail, and all values written here have fixed sizes.
	_ = binary.Write(b, binary.LittleEndian, v)
}

func putString(b *bytes.Buffer, s string) {
	put(b, uint64(len(s)))
	b.WriteString(s)
}

func (w *writer) key(name string, valueType uint32) *bytes.Buffer {
	w.pairCount++
	putString(&w.pairs, name)
	put(&w.pairs, valueType)
	return &w.pairs
}

func (w *writer) text(name, v string)          { putString(w.key(name, typeString), v) }
func (w *writer) number(name string, v uint32) { put(w.key(name, typeUint32), v) }
func (w *writer) float(name string, v float32) { put(w.key(name, typeFloat32), v) }
func (w *writer) flag(name string, v bool)     { put(w.key(name, typeBool), v) }

func (w *writer) array(name string, elementType uint32, n int) *bytes.Buffer {
	b := w.key(name, typeArray)
	put(b, elementType)
	put(b, uint64(n))
	return b
}

func (w *writer) texts(name string, v []string) {
	b := w.array(name, typeString, len(v))
	for _, s := range v {
		putString(b, s)
	}
}

func (w *writer) floats(name string, v []float32) { put(w.array(name, typeFloat32, len(v)), v) }
func (w *writer) ints(name string, v []int32)     { put(w.array(name, typeInt32, len(v)), v) }

// tensor adds a tensor with its raw data; the first dimension is contiguous in memory.
func (w *writer) tensor(name string, kind uint32, data any, dims ...uint64) {
	w.tensors++
	putString(&w.directory, name)
	put(&w.directory, uint32(len(dims)))
	put(&w.directory, dims)
	put(&w.directory, kind)
	put(&w.directory, uint64(w.data.Len()))
	put(&w.data, data)
	pad(&w.data)
}

func (w *writer) bytes() []byte {
	var out bytes.Buffer
	out.WriteString(ggufMagic)
	put(&out, uint32(ggufVersion))
	put(&out, w.tensors)
	put(&out, w.pairCount)
	out.Write(w.pairs.Bytes())
	out.Write(w.directory.Bytes())
	pad(&out)
	out.Write(w.data.Bytes())
	return out.Bytes()
}

func pad(b *bytes.Buffer) {
	b.Write(make([]byte, (alignment-b.Len()%alignment)%alignment))
}

// half returns the IEEE 754 half-precision bits of k × 2^-shift, for |k| < 2048
// and results in the normal range: these are exact, so no rounding can differ
// between machines.
func half(k int32, shift int) uint16 {
	if k == 0 {
		return 0
	}
	bits := math.Float32bits(float32(math.Ldexp(float64(k), -shift)))
	sign := uint16(bits >> 16 & 0x8000)
	exponent := int(bits>>23&0xff) - 127 + 15
	return sign | uint16(exponent)<<10 | uint16(bits>>13&0x3ff)
}
