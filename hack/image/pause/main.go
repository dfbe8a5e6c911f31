// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pause holds a pod's namespaces until a signal ends it. It reaps orphaned processes of the pod's containers if
// these share its process namespace.
package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// reap collects all ended children, because the kernel merges simultaneous signals of the same kind.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if pid <= 0 || err != nil {
			return
		}
	}
}
