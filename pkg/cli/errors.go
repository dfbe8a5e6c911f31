// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
)

// The exit codes; docs/reference/cli.md tells users.
const (
	codeDone = 0
	// codeDiffers is diff's exit code for a change, and codeStalled that of status --watch for a stalled Workspace.
	codeDiffers = 1
	codeStalled = 1
	// codeSick is doctor's exit code for an error among the findings, and codeUnchecked that for a silent cluster.
	codeSick      = 1
	codeUnchecked = 2
	// codeUsage means a wrong flag, file or name.
	codeUsage = 2
	// codeInfeasible means that no plan meets the request.
	codeInfeasible = 3
	// codeHub means that the hub did not describe the model.
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

// sick ends doctor: the findings say why.
func sick() error { return &exitError{code: codeSick, err: errors.New("")} }

// differs ends diff: there is nothing more to say.
func differs() error { return &exitError{code: codeDiffers, err: errors.New("")} }

func usageError(format string, args ...any) error {
	return &exitError{code: codeUsage, err: fmt.Errorf(format, args...)}
}

func clusterError(format string, args ...any) error {
	return &exitError{code: codeCluster, err: fmt.Errorf(format, args...)}
}

// codeOf is the exit code for an error. Errors without a code are about the command line.
func codeOf(err error) int {
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.code
	}
	return codeUsage
}
