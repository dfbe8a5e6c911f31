// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
)

// A connection carries one request and one answer, each one JSON value. The client closes its side for writing after
// the request. The controller's side is pkg/cosign; testdata/request.json tests both.

const (
	// maxRequest in bytes has room for the controller's largest bundle (256 KiB), in base64.
	maxRequest = 512 << 10
	// maxProblem bounds the message about a bundle, in bytes.
	maxProblem = 500
	// maxPattern bounds the pattern of a subject, in bytes.
	maxPattern = 1024
)

// request asks whether an identity has signed a digest.
type request struct {
	// Bundle is Sigstore's, in JSON.
	Bundle []byte `json:"bundle"`
	// Digest is the SHA-256 of the artifact: 64 hexadecimal digits.
	Digest string `json:"digest"`
	// PredicateType is the required type of the statement.
	PredicateType string `json:"predicateType"`
	// Issuer of the identity, as the certificate has it.
	Issuer string `json:"issuer"`
	// Subject or SubjectRegExp for the whole alternative name of the certificate.
	Subject       string `json:"subject,omitempty"`
	SubjectRegExp string `json:"subjectRegExp,omitempty"`
}

// answer is the verdict, with the problem if it is negative.
type answer struct {
	Verified bool   `json:"verified"`
	Problem  string `json:"problem,omitempty"`
}

// readRequest reads a request to the end of the client's data.
func readRequest(from io.Reader) (request, error) {
	content, err := io.ReadAll(io.LimitReader(from, maxRequest+1))
	if err != nil {
		return request{}, fmt.Errorf("reading the request: %w", err)
	}
	if len(content) > maxRequest {
		return request{}, fmt.Errorf("the request has more than %d bytes", maxRequest)
	}
	return parseRequest(content)
}

// parseRequest refuses unknown fields: an answer that ignores a part of its request would be wrong.
func parseRequest(content []byte) (request, error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	var out request
	if err := decoder.Decode(&out); err != nil {
		return request{}, fmt.Errorf("the request is malformed: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return request{}, errors.New("the request is malformed: unexpected data follows it")
	}
	return out, out.check()
}

func (r request) check() error {
	switch {
	case len(r.Bundle) == 0:
		return errors.New("the request has no bundle")
	case !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(r.Digest):
		return errors.New("the request's digest does not have 64 hexadecimal digits")
	case r.PredicateType == "":
		return errors.New("the request has no predicateType")
	case r.Issuer == "":
		return errors.New("the request has no issuer")
	case (r.Subject == "") == (r.SubjectRegExp == ""):
		return errors.New("the request must have exactly one of subject and subjectRegExp")
	case len(r.SubjectRegExp) > maxPattern:
		return fmt.Errorf("the request's subjectRegExp has more than %d bytes", maxPattern)
	}
	return nil
}

// answerTo says how a verification ended.
func answerTo(err error) answer {
	if err == nil {
		return answer{Verified: true}
	}
	problem := err.Error()
	return answer{Problem: problem[:min(len(problem), maxProblem)]}
}
