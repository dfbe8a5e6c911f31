// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"
)

// The exit codes, as in docs/reference/cli.md.
const (
	codeDone = 0
	// codeDiffers ends diff if something changes. codeStalled ends status --watch if waiting is of no use.
	codeDiffers = 1
	codeStalled = 1
	// codeUsage: a flag, a file or a name in it is wrong.
	codeUsage = 2
	// codeInfeasible: nothing serves the request.
	codeInfeasible = 3
	// codeHub: the hub did not describe the model.
	codeHub = 4
	// codeCluster: the cluster or the model's server failed, or took too long.
	codeCluster = 5
)

// exitError is an error with an exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// differs ends diff without a message.
func differs() error { return &exitError{code: codeDiffers, err: errors.New("")} }

func usageError(format string, args ...any) error {
	return &exitError{code: codeUsage, err: fmt.Errorf(format, args...)}
}

func clusterError(format string, args ...any) error {
	return &exitError{code: codeCluster, err: fmt.Errorf(format, args...)}
}

// codeOf returns the exit code of an error. An error without one is about the command line.
func codeOf(err error) int {
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.code
	}
	return codeUsage
}

// oneLine returns an error's text on one line.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
