// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command vllm stands in for vLLM's server in tests without GPUs. It is started as the upstream image is,
//
//	vllm serve /models --tensor-parallel-size 2 …
//
// and behaves as the pinned release does, as far as it shows outside: its flags and the refusal of others (status 2),
// its checks of model, GPUs and environment (an exception and status 1), its log lines with figures, the port that
// opens only when it is ready, the join with the other machines of a group, routes, errors, streams, metric names, and
// the effect of SIGTERM. Its answers are invented.
//
// Variables for tests:
//
//	VLLMSIM_LOAD, VLLMSIM_COMPILE  how long loading takes, and compiling where the cache is empty (2s)
//	VLLMSIM_TTFT, VLLMSIM_ITL      how long the first token and each other one takes (50ms)
//	VLLMSIM_GPU_GIB                memory of a GPU (80)
//	VLLMSIM_SCRIPT                 when to break: see script.go
//
// NVIDIA_VISIBLE_DEVICES names the GPUs. VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS and --distributed-timeout-seconds bound
// the wait for a lost member, as in vLLM.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/modelberth/modelberth/test/vllmsim/args"
	"github.com/modelberth/modelberth/test/vllmsim/launch"
)

// version is the release of flags.txt.
const version = "0.31.0"

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	os.Exit(run(os.Args[1:], signals, os.Stdout, os.Stderr))
}

func run(arguments []string, signals <-chan os.Signal, out, errs io.Writer) int {
	switch {
	case len(arguments) > 0 && (arguments[0] == "--version" || arguments[0] == "-v"):
		fmt.Fprintln(out, version)
		return 0
	case len(arguments) == 0 || arguments[0] != "serve":
		fmt.Fprintln(errs, "vllmsim: only `vllm serve` is simulated")
		return 2
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	p := &process{log: logger{out: out, errs: errs}, signals: signals, end: cancel}
	err := p.serve(ctx, arguments[1:])
	var ended *exit
	var usage *args.UsageError
	switch {
	case errors.As(err, &ended):
		if ended.say != "" {
			fmt.Fprintln(errs, ended.say)
		}
		return ended.code
	case errors.As(err, &usage):
		fmt.Fprintln(errs, usage)
		return 2
	case err != nil:
		p.log.traceback(err)
		return 1
	}
	return 0
}

// exit ends the process with a code.
type exit struct {
	code int
	say  string
}

func (e *exit) Error() string { return fmt.Sprintf("exit %d", e.code) }

// terminated returns the exit after SIGTERM before the server is ready.
func terminated() error { return &exit{code: 0} }

// environment reads the inputs of the checks.
func environment(variables map[string]string) launch.Environment {
	env := launch.Environment{Variables: variables, UserID: os.Getuid(), SharedBytes: sharedBytes()}
	env.UserKnown = userKnown(env.UserID)
	return env
}
