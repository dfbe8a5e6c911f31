// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inside returns a transport whose connections begin in the network of a node. They reach Services and pods as those of
// an application there would, and there may be hundreds of them a second.
func inside(t *testing.T, node string) *http.Transport {
	t.Helper()
	pid := machinePID(t, node)
	transport := &http.Transport{
		MaxIdleConnsPerHost: 32,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialInside(ctx, pid, network, address)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// dialInside connects from the network namespace of a process. A thread changes namespaces and ends, because no other
// goroutine may run on it.
func dialInside(ctx context.Context, pid int, network, address string) (net.Conn, error) {
	type dialed struct {
		connection net.Conn
		err        error
	}
	out := make(chan dialed, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		connection, err := func() (net.Conn, error) {
			namespace, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, fmt.Errorf("opening the network of process %d: %w", pid, err)
			}
			defer func() { _ = unix.Close(namespace) }()
			if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
				return nil, fmt.Errorf("entering the network of process %d: %w", pid, err)
			}
			return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, address)
		}()
		out <- dialed{connection, err}
	}()
	got := <-out
	return got.connection, got.err
}
