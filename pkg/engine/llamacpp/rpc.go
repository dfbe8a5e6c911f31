// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package llamacpp

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/modelberth/modelberth/pkg/engine"
)

// rpcPort is where the machines but the first lend their GPUs to the server on the first one. It is the RPC
// server's own default. It asks nobody who he is, so nobody else may reach it.
const rpcPort = 50052

// worker returns how to start the RPC server on a machine that lends its GPUs. It serves one client at a
// time, the leader, which sends it the layers that it is to hold. The leader ends when a worker does, and
// does not start before all of them listen.
func worker(in engine.Input, env []engine.EnvVar) engine.Command {
	return engine.Command{
		Entrypoint:     slices.Clone(in.Data.WorkerCommand),
		Args:           []string{"--host", "0.0.0.0", "--port", strconv.Itoa(rpcPort)},
		Env:            env,
		OpenPort:       rpcPort,
		IgnoresSignals: true, // it handles none, and the kernel spares process 1 then
		NoWeights:      true,
	}
}

// endpoints are where the workers listen.
func endpoints(workers []string) []string {
	list := make([]string, len(workers))
	for i, host := range workers {
		list[i] = fmt.Sprintf("%s:%d", host, rpcPort)
	}
	return list
}
