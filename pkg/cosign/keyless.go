// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cosign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/modelberth/modelberth/pkg/redact"
)

// Limits of a request to the verifier: its time, and the bytes of the answer.
const (
	verifierDeadline  = 5 * time.Second
	maxVerifierAnswer = 4 << 10
)

// Identity is a signer without a long-lived key. An authority issues it a certificate for an issuer's token.
type Identity struct {
	Issuer string
	// Subject is the exact subject. SubjectRegExp, if set instead, must match the whole subject.
	Subject       string
	SubjectRegExp string
}

// Question is the request to check whether an identity has signed a digest.
type Question struct {
	// Bundle is the Sigstore bundle in JSON.
	Bundle []byte `json:"bundle"`
	// Digest is the artifact's SHA-256 in 64 hexadecimal digits.
	Digest        string `json:"digest"`
	PredicateType string `json:"predicateType"`
	Issuer        string `json:"issuer"`
	Subject       string `json:"subject,omitempty"`
	SubjectRegExp string `json:"subjectRegExp,omitempty"`
}

// Verifier is modelberth-verifier. It runs in a separate container, because the libraries for certificates and
// transparency logs are a third of the controller's size (docs/adr/0014-verified-weights.md).
type Verifier struct {
	// Socket is the verifier's Unix socket; empty without a verifier.
	Socket string
}

// Verify returns nil if the identity has signed the digest. A *VerifierError means that the verifier was unreachable or
// its answer malformed. Any other error is about the bundle.
func (v Verifier) Verify(ctx context.Context, asked Question) error {
	ctx, cancel := context.WithTimeout(ctx, verifierDeadline)
	defer cancel()
	content, err := json.Marshal(asked)
	if err != nil {
		return fmt.Errorf("encoding the request to the verifier: %w", err)
	}
	said, err := v.exchange(ctx, content)
	if err != nil {
		return &VerifierError{err}
	}
	var answer struct {
		Verified bool   `json:"verified"`
		Problem  string `json:"problem"`
	}
	decoder := json.NewDecoder(strings.NewReader(said))
	decoder.DisallowUnknownFields()
	switch err := decoder.Decode(&answer); {
	case err != nil:
		return &VerifierError{errors.New("its response is malformed")}
	case answer.Verified && answer.Problem == "":
		return nil
	default: // the text may contain parts of an untrusted bundle
		return fmt.Errorf("%.300q", redact.Text(answer.Problem))
	}
}

// exchange sends a request and returns the answer.
func (v Verifier) exchange(ctx context.Context, question []byte) (string, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", v.Socket)
	if err != nil {
		return "", err
	}
	defer func() { _ = connection.Close() }()
	until, _ := ctx.Deadline()
	if err := connection.SetDeadline(until); err != nil {
		return "", err
	}
	if _, err := connection.Write(question); err != nil {
		return "", err
	}
	if half, ok := connection.(*net.UnixConn); ok {
		if err := half.CloseWrite(); err != nil {
			return "", err
		}
	}
	answer, err := io.ReadAll(io.LimitReader(connection, maxVerifierAnswer+1))
	if err != nil {
		return "", err
	}
	if len(answer) > maxVerifierAnswer {
		return "", fmt.Errorf("its response has more than %d bytes", maxVerifierAnswer)
	}
	return string(answer), nil
}

// VerifierError means that the verifier was unreachable or its answer malformed.
type VerifierError struct{ err error }

// Error names the program and where its logs are.
func (e *VerifierError) Error() string {
	return fmt.Sprintf("modelberth-verifier did not answer (%v): see the log of container verifier in the controller's pod", e.err)
}

// Unwrap returns the cause.
func (e *VerifierError) Unwrap() error { return e.err }
