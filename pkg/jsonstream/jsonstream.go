// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jsonstream reads large JSON documents token by token. It has one token at a time in memory, and the values
// that the caller requests.
//
// It decides how to traverse a document and how deep it may be nested. It must not know the meaning or the source of a
// document.
package jsonstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxDepth limits nesting, because the decoder keeps each open array and object.
const maxDepth = 64

// Decoder reads one document. A callback must read exactly the value that it is called for.
type Decoder struct {
	tokens *json.Decoder
	depth  int
}

// New returns a decoder for the document of r.
func New(r io.Reader) *Decoder {
	d := &Decoder{tokens: json.NewDecoder(r)}
	d.tokens.UseNumber()
	return d
}

// Object reads an object and calls member for each key.
func (d *Decoder) Object(member func(key string) error) error {
	if err := d.open('{'); err != nil {
		return err
	}
	return d.members(member)
}

// ObjectIfAny is Object if the value is an object. It skips any other value.
func (d *Decoder) ObjectIfAny(member func(key string) error) error {
	token, err := d.tokens.Token()
	if err != nil {
		return err
	}
	if token != json.Delim('{') {
		_, err := d.rest(token)
		return err
	}
	if err := d.enter(); err != nil {
		return err
	}
	return d.members(member)
}

func (d *Decoder) members(member func(key string) error) error {
	for d.tokens.More() {
		token, err := d.tokens.Token()
		if err != nil {
			return err
		}
		key, ok := token.(string)
		if !ok {
			return fmt.Errorf("%v is not a key", token)
		}
		if err := member(key); err != nil {
			return err
		}
	}
	return d.close()
}

// Array reads an array and calls element for each element.
func (d *Decoder) Array(element func() error) error {
	if err := d.open('['); err != nil {
		return err
	}
	for d.tokens.More() {
		if err := element(); err != nil {
			return err
		}
	}
	return d.close()
}

// Skip reads any value and keeps nothing of it.
func (d *Decoder) Skip() error {
	_, err := d.Scalar()
	return err
}

// Scalar reads a string, a json.Number, a bool or nil. It skips an object or array and returns nil.
func (d *Decoder) Scalar() (any, error) {
	token, err := d.tokens.Token()
	if err != nil {
		return nil, err
	}
	return d.rest(token)
}

// rest skips the rest of the value that a token begins.
func (d *Decoder) rest(token json.Token) (any, error) {
	if _, nested := token.(json.Delim); !nested {
		return token, nil
	}
	for open := 1; open > 0; {
		delimiter, err := d.nextDelim()
		if err != nil {
			return nil, err
		}
		if delimiter == '{' || delimiter == '[' {
			open++
		} else {
			open--
		}
		if d.depth+open > maxDepth {
			return nil, errTooDeep
		}
	}
	return nil, nil
}

// Text reads a string. It skips any other value and returns "".
func (d *Decoder) Text() (string, error) {
	value, err := d.Scalar()
	text, _ := value.(string)
	return text, err
}

// Value reads a value like json.Unmarshal. The decoder has its whole text in memory, so use it for values that are
// small in valid documents.
func (d *Decoder) Value(into any) error { return d.tokens.Decode(into) }

// End returns an error unless only white space is left.
func (d *Decoder) End() error {
	token, err := d.tokens.Token()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%v follows the document", token)
}

// Offset returns the number of bytes read so far.
func (d *Decoder) Offset() int64 { return d.tokens.InputOffset() }

var errTooDeep = fmt.Errorf("nested more than %d deep", maxDepth)

func (d *Decoder) open(want json.Delim) error {
	token, err := d.tokens.Token()
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	if token != want {
		return &KindError{Want: want.String()}
	}
	return d.enter()
}

func (d *Decoder) enter() error {
	d.depth++
	if d.depth > maxDepth {
		return errTooDeep
	}
	return nil
}

func (d *Decoder) close() error {
	d.depth--
	_, err := d.tokens.Token()
	return err
}

// nextDelim skips scalars.
func (d *Decoder) nextDelim() (json.Delim, error) {
	for {
		token, err := d.tokens.Token()
		if err != nil {
			return 0, err
		}
		if delimiter, ok := token.(json.Delim); ok {
			return delimiter, nil
		}
	}
}

// KindError reports a value of an unexpected kind.
type KindError struct{ Want string }

func (e *KindError) Error() string {
	if e.Want == "[" {
		return "want an array"
	}
	return "want an object"
}
