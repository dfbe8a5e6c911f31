// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package netspace

import (
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const address = "10.231.0.1"

func newTestSpace(t *testing.T) *Space {
	t.Helper()
	s, err := New()
	if errors.Is(err, unix.EPERM) {
		t.Skipf("needs root: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func hostLinks(t *testing.T) []string {
	t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, link := range links {
		names = append(names, link.Attrs().Name)
	}
	return names
}

func TestTheHostSeesNothing(t *testing.T) {
	before := hostLinks(t)
	s := newTestSpace(t)
	if err := s.Bridge(address, 24); err != nil {
		t.Fatal(err)
	}
	listener, err := s.Listen(t.Context(), address+":0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, _ = conn.Write([]byte("hello"))
			_ = conn.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := s.Dial(ctx, listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(conn)
	if err != nil || string(said) != "hello" {
		t.Errorf("inside, the listener says %q, %v", said, err)
	}
	var dialer net.Dialer
	brief, cancelBrief := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancelBrief()
	if conn, err := dialer.DialContext(brief, "tcp4", listener.Addr().String()); err == nil {
		_ = conn.Close()
		t.Error("the host reaches the listener without going through Dial")
	}
	if diff := cmp.Diff(before, hostLinks(t)); diff != "" {
		t.Errorf("the host's interfaces changed (-before +after):\n%s", diff)
	}
	s.Close()
}

// TestPlug joins a second namespace to the bridge and takes it off again.
func TestPlug(t *testing.T) {
	s := newTestSpace(t)
	defer s.Close()
	if err := s.Bridge(address, 24); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if err := s.Start(cmd); err != nil {
		t.Fatal(err)
	}
	const node, pods = "10.231.0.10", "10.244.0.0/24"
	if err := s.Plug(cmd.Process.Pid, 0, node, pods); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"lo", "bridge", "node0"}, s.links(t)); diff != "" {
		t.Errorf("interfaces with a node (-want +got):\n%s", diff)
	}
	if got := s.routes(t); !strings.Contains(got, pods+" via "+node) {
		t.Errorf("routes are %s, want one to %s by %s", got, pods, node)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for range 2 { // the second finds nothing to undo
		if err := s.Unplug(0, node, pods); err != nil {
			t.Errorf("unplugging: %v", err)
		}
	}
	if diff := cmp.Diff([]string{"lo", "bridge"}, s.links(t)); diff != "" {
		t.Errorf("interfaces after the node (-want +got):\n%s", diff)
	}
	if got := s.routes(t); strings.Contains(got, pods) {
		t.Errorf("routes are %s, want none to %s", got, pods)
	}
}

// TestNeverOnTheFirstThread holds the first thread's place open many times: a function there would never end.
func TestNeverOnTheFirstThread(t *testing.T) {
	for range 200 {
		tid := make(chan int)
		onOwnThread(func() { tid <- unix.Gettid() })
		if <-tid == unix.Getpid() {
			t.Fatal("it runs on the process's first thread")
		}
	}
}

// TestProcessesEndWithTheSpace checks down's assumption after a crash: everything ends on its own.
func TestProcessesEndWithTheSpace(t *testing.T) {
	s := newTestSpace(t)
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := s.Start(cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	s.Close()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("it ended with %v, want that it was killed", err)
		}
	case <-time.After(10 * time.Second):
		_ = cmd.Process.Kill()
		t.Error("the process outlived the namespace's thread")
	}
}

func (s *Space) links(t *testing.T) []string {
	t.Helper()
	links, err := s.handle.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, link := range links {
		names = append(names, link.Attrs().Name)
	}
	return names
}

func (s *Space) routes(t *testing.T) string {
	t.Helper()
	routes, err := s.handle.RouteList(nil, unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, route := range routes {
		if route.Gw != nil {
			out = append(out, route.Dst.String()+" via "+route.Gw.String())
		}
	}
	return strings.Join(out, "; ")
}
