// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package body

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
)

// maxModelName is the longest accepted value of a form's field, in bytes.
const maxModelName = 1024

// maxParts is the most parts that a form may have.
const maxParts = 64

// Form reads the model and the stream flag of a form. Clients send audio as forms.
func Form(contentType string, text []byte) (Fields, error) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil || params["boundary"] == "" {
		return Fields{}, errors.New("the form has no boundary in its Content-Type")
	}
	parts := multipart.NewReader(bytes.NewReader(text), params["boundary"])
	var out Fields
	seen := map[string]bool{}
	for n := 0; ; n++ {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Fields{}, fmt.Errorf("the body is not a form: %w", err)
		}
		name := part.FormName()
		if n >= maxParts {
			return Fields{}, fmt.Errorf("the form has more than %d parts", maxParts)
		}
		if name != "model" && name != "stream" {
			if err := out.weigh(part); err != nil {
				return Fields{}, err
			}
			continue
		}
		if seen[name] {
			return Fields{}, fmt.Errorf("the form has two parts %q: send one", name)
		}
		seen[name] = true
		value, err := io.ReadAll(io.LimitReader(part, maxModelName+1))
		if err != nil || len(value) > maxModelName {
			return Fields{}, fmt.Errorf("the form's %q is longer than %d bytes", name, maxModelName)
		}
		if name == "model" {
			out.Model = string(value)
		} else {
			out.Stream = string(value) == "true"
		}
	}
	if out.Model == "" {
		return Fields{}, ErrNoModel
	}
	return out, nil
}

// weigh adds the size of a part whose value is not read. A part with a file name is audio.
func (f *Fields) weigh(part *multipart.Part) error {
	size, err := io.Copy(io.Discard, part)
	if err != nil {
		return fmt.Errorf("the body is not a form: %w", err)
	}
	if part.FileName() != "" {
		f.Sound += int(size)
		return nil
	}
	f.Other += int(size)
	return nil
}
