// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"errors"
	"net/http"
	"slices"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/modelberth/modelberth/pkg/hub"
	"github.com/modelberth/modelberth/pkg/redact"
)

// explain turns a registry's error into an error of package hub.
func (s *Source) explain(f hub.File, err error) error {
	var answer *transport.Error
	if !errors.As(err, &answer) {
		return &hub.UnreachableError{Endpoint: s.Registry(), File: f, Err: redact.Error(err)}
	}
	says := func(code transport.ErrorCode) bool {
		return slices.ContainsFunc(answer.Errors, func(d transport.Diagnostic) bool { return d.Code == code })
	}
	switch {
	case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
		return &hub.UnauthorizedError{File: f, Status: answer.StatusCode}
	case says(transport.NameUnknownErrorCode):
		return &hub.NotFoundError{File: f, Missing: "repository"}
	case answer.StatusCode == http.StatusNotFound:
		return &hub.NotFoundError{File: f, Missing: "revision"}
	}
	return &hub.UnreachableError{Endpoint: s.Registry(), File: f, Status: answer.StatusCode}
}
