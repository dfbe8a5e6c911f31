// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package llamacpp

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/modelberth/modelberth/pkg/engine"
)

// rpcPort is the RPC server's default port. Through it, all machines but the first lend their GPUs to the server on the
// first. The RPC server has no authentication, so no other pod may reach it.
const rpcPort = 50052

// worker returns the command of the RPC server on a machine that lends its GPUs. It serves one client at a time: the
// leader, which sends it its layers. The leader does not start before all workers listen, and ends when one of them
// does.
func worker(in engine.Input, env []engine.EnvVar) engine.Command {
	return engine.Command{
		Entrypoint:     slices.Clone(in.Data.WorkerCommand),
		Args:           []string{"--host", "0.0.0.0", "--port", strconv.Itoa(rpcPort)},
		Env:            env,
		OpenPort:       rpcPort,
		IgnoresSignals: true, // it handles no signal, and the kernel delivers none to process 1 by default
		NoWeights:      true,
	}
}

// endpoints returns the addresses of the workers.
func endpoints(workers []string) []string {
	list := make([]string, len(workers))
	for i, host := range workers {
		list[i] = fmt.Sprintf("%s:%d", host, rpcPort)
	}
	return list
}
