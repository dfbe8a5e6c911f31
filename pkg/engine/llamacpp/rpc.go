// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package llamacpp

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/modelberth/modelberth/pkg/engine"
)

// rpcPort is the RPC server's default port. There, all machines but the first lend their GPUs to the server on the
// first one. It has no authentication, so no other pod may reach it.
const rpcPort = 50052

// worker returns the command of the RPC server on a machine that lends its GPUs. It serves one client at a time,
// the leader, which sends it its layers. The leader ends when a worker does, and does not start before all of them
// listen.
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

// endpoints are the addresses of the workers.
func endpoints(workers []string) []string {
	list := make([]string, len(workers))
	for i, host := range workers {
		list[i] = fmt.Sprintf("%s:%d", host, rpcPort)
	}
	return list
}
