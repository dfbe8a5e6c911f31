// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
)

// The exit codes; docs/reference/cli.md documents them for users.
const (
	codeDone = 0
	// codeDiffers is diff's exit code for a change. codeStalled is the exit code of status --watch for a stalled
	// Workspace.
	codeDiffers = 1
	codeStalled = 1
	// codeSick is doctor's exit code for an error among the findings. codeUnchecked means that the cluster did not
	// answer.
	codeSick      = 1
	codeUnchecked = 2
	// codeUsage means a wrong flag, file or name.
	codeUsage = 2
	// codeInfeasible means that no plan meets the request.
	codeInfeasible = 3
	// codeHub means that the hub has no description of the model.
	codeHub = 4
	// codeCluster means that the cluster or the model's server failed, or was too slow.
	codeCluster = 5
)

// exitError is an error with an exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// sick returns doctor's error. It has no text, because the findings explain it.
func sick() error { return &exitError{code: codeSick, err: errors.New("")} }

// differs returns diff's error. It has no text, because diff has printed the change.
func differs() error { return &exitError{code: codeDiffers, err: errors.New("")} }

func usageError(format string, args ...any) error {
	return &exitError{code: codeUsage, err: fmt.Errorf(format, args...)}
}

func clusterError(format string, args ...any) error {
	return &exitError{code: codeCluster, err: fmt.Errorf(format, args...)}
}

// codeOf returns the exit code for an error. Errors without a code are about the command line.
func codeOf(err error) int {
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.code
	}
	return codeUsage
}
