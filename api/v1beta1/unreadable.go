// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

// The API server has no schema for pod templates and volumes, so it stores values that do not fit the Go types
// (containers: 5). With a strict decoder, one such object would prevent every client of these types from listing
// Workspaces: a user of one namespace could stop the controller for all. Unreadable values are therefore left
// empty, with the error beside them. Such an object must not be written back as a whole; Modelberth only ever
// patches.

// UnmarshalJSON reads an InferenceSpec even if its template cannot be read: then Template is
// empty and TemplateError says why.
func (i *InferenceSpec) UnmarshalJSON(data []byte) error {
	type plain InferenceSpec
	in := struct {
		*plain
		Template json.RawMessage `json:"template"`
	}{plain: (*plain)(i)}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &in); err != nil {
		return err
	}
	i.Template, i.TemplateError = readOrEmpty[corev1.PodTemplateSpec](in.Template)
	return nil
}

// UnmarshalJSON reads a DataSource even if its volume cannot be read: then Volume is empty and
// VolumeError says why.
func (s *DataSource) UnmarshalJSON(data []byte) error {
	type plain DataSource
	in := struct {
		*plain
		Volume json.RawMessage `json:"volumeSource"`
	}{plain: (*plain)(s)}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &in); err != nil {
		return err
	}
	s.Volume, s.VolumeError = readOrEmpty[corev1.VolumeSource](in.Volume)
	return nil
}

// UnmarshalJSON reads a DataDestination even if its volume cannot be read: then Volume is empty
// and VolumeError says why.
func (d *DataDestination) UnmarshalJSON(data []byte) error {
	type plain DataDestination
	in := struct {
		*plain
		Volume json.RawMessage `json:"volumeSource"`
	}{plain: (*plain)(d)}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &in); err != nil {
		return err
	}
	d.Volume, d.VolumeError = readOrEmpty[corev1.VolumeSource](in.Volume)
	return nil
}

// readOrEmpty reads a value. An absent one is nil; an unreadable one is empty, with the reason.
func readOrEmpty[T any](data json.RawMessage) (value *T, problem string) {
	if len(data) == 0 || string(data) == "null" {
		return nil, ""
	}
	value = new(T)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, value); err != nil {
		return new(T), err.Error()
	}
	return value, ""
}
