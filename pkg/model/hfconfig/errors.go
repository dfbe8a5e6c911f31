// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hfconfig

import (
	"fmt"
	"strings"

	"github.com/modelberth/modelberth/pkg/wording"
)

// FieldError means that a file has an impossible value.
type FieldError struct {
	// File is the file's name. Field has dots between nested keys; empty means the whole file.
	File, Field string
	// Value is as in the file, shortened; empty if it is missing.
	Value string
	// Must is the requirement for the value.
	Must string
}

func (e *FieldError) Error() string {
	switch {
	case e.Field == "":
		return fmt.Sprintf("%s %s", e.File, e.Must)
	case e.Value == "":
		return fmt.Sprintf("%s: %s %s", e.File, e.Field, e.Must)
	}
	return fmt.Sprintf("%s: %s: %s %s", e.File, e.Field, e.Value, e.Must)
}

// UnsupportedError means that a config is valid, but plans do not support its model.
type UnsupportedError struct {
	// Architecture and Type are as in the config; either may be empty.
	Architecture, Type string
	// Reason describes the kind of model; empty if unknown.
	Reason string
}

func (e *UnsupportedError) Error() string {
	name := "model_type " + quoted(e.Type)
	if e.Architecture != "" {
		name = fmt.Sprintf("architecture %s (model_type %s)", quoted(e.Architecture), quoted(e.Type))
	}
	if e.Reason != "" {
		return fmt.Sprintf("config.json: %s %s", name, e.Reason)
	}
	return fmt.Sprintf("config.json: %s is unknown: describe the model's shape, context and weights as an entry of models in a catalogue overlay", name)
}

const longestShown = 43

// shown shortens a value and puts it on one line.
func shown(raw string) string {
	return wording.ClipBytes(strings.Join(strings.Fields(strings.ToValidUTF8(raw, "?")), " "), longestShown)
}

func quoted(text string) string {
	return fmt.Sprintf("%q", shown(text))
}
