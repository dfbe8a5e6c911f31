// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package netspace owns the private network of the control plane and the nodes: an anonymous network namespace with a
// bridge, one virtual cable for each node and one route for each node's pods. The namespace is held by a thread and
// not by a name, so it ends with the process, however that ends. The package must not know the programs inside.
package netspace

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Space is a network namespace and its one thread. The thread starts all processes: their parent-death signal follows
// their starter, so it has to outlive them.
type Space struct {
	work   chan func()
	done   chan struct{}
	ns     netns.NsHandle
	handle *netlink.Handle
}

// New makes an empty namespace. Close ends it.
func New() (*Space, error) {
	s := &Space{work: make(chan func()), done: make(chan struct{})}
	ready := make(chan error)
	onOwnThread(func() { s.live(ready) })
	if err := <-ready; err != nil {
		return nil, err
	}
	handle, err := netlink.NewHandleAt(s.ns, unix.NETLINK_ROUTE)
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("opening netlink in the control plane's network namespace: %w", err)
	}
	s.handle = handle
	return s, nil
}

// onOwnThread runs f, in the background, on a thread with the same end: the Go runtime ends a thread never unlocked
// instead of reusing it. The process's first thread is the exception: the runtime would only park it, so f never gets
// it.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		// While this goroutine holds the first thread, the next one gets another.
		moved := make(chan struct{})
		onOwnThread(func() {
			close(moved)
			f()
		})
		<-moved
		runtime.UnlockOSThread()
	}()
}

// live runs on the namespace's own thread.
func (s *Space) live(ready chan<- error) {
	defer close(s.done)
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		ready <- fmt.Errorf("making a network namespace: %w", err)
		return
	}
	ns, err := netns.Get()
	if err != nil {
		ready <- fmt.Errorf("opening the new network namespace: %w", err)
		return
	}
	s.ns = ns
	ready <- nil
	for f := range s.work {
		f()
	}
}

// Close ends the namespace's thread and with it every process started from it.
func (s *Space) Close() {
	close(s.work)
	<-s.done
	if s.handle != nil {
		s.handle.Close()
	}
	_ = s.ns.Close()
}

// Do runs f on the thread inside the namespace. f must be brief: calls queue up.
func (s *Space) Do(f func() error) error {
	result := make(chan error, 1)
	s.work <- func() { result <- f() }
	return <-result
}

// Start starts a process inside the namespace.
func (s *Space) Start(cmd *exec.Cmd) error { return s.Do(cmd.Start) }

// Listen opens a TCP listener inside the namespace. A socket stays in the
// namespace it was made in, so any goroutine may serve it.
func (s *Space) Listen(ctx context.Context, address string) (net.Listener, error) {
	var l net.Listener
	err := s.Do(func() (err error) {
		var config net.ListenConfig
		l, err = config.Listen(ctx, "tcp4", address)
		return err
	})
	return l, err
}

// Dial connects to a TCP address inside the namespace, on a separate thread, because it may wait for the peer.
func (s *Space) Dial(ctx context.Context, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	onOwnThread(func() { // a moved thread is spent
		if err := netns.Set(s.ns); err != nil {
			done <- result{err: fmt.Errorf("entering the control plane's network namespace: %w", err)}
			return
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp4", address)
		done <- result{conn: conn, err: err}
	})
	r := <-done
	return r.conn, r.err
}

// WriteSysctl sets a kernel parameter of the calling thread's network
// namespace, by its path below /proc/sys.
func WriteSysctl(path, value string) error {
	if err := os.WriteFile("/proc/sys/"+path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("setting sysctl %s to %s: %w", path, value, err)
	}
	return nil
}
