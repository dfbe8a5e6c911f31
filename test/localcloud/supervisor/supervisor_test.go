// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/process"
)

func TestLockKeepsASecondSupervisorOut(t *testing.T) {
	l := layout.Layout{Root: t.TempDir()}
	unlock, err := lock(l)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(l); err == nil || !strings.Contains(err.Error(), "another supervisor holds") {
		t.Errorf("the second gets %v, want that another holds it", err)
	}
	unlock()
	again, err := lock(l)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	again()
}

func TestUnreadiness(t *testing.T) {
	node := func(status corev1.ConditionStatus) corev1.Node {
		return corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "Plenty"},
			{Type: corev1.NodeReady, Status: status, Reason: "NoNetwork", Message: "no cable"},
		}}}
	}
	for _, test := range []struct {
		reason string
		node   corev1.Node
		want   string
	}{
		{"a ready node lacks nothing", node(corev1.ConditionTrue), ""},
		{"an unready one says why", node(corev1.ConditionFalse), "NoNetwork: no cable"},
		{"so does one that is not heard of", node(corev1.ConditionUnknown), "NoNetwork: no cable"},
		{"a new one has not spoken", corev1.Node{}, "the kubelet has not reported yet"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			if got := unreadiness(test.node); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestAiling(t *testing.T) {
	system := func(node string) MachineStatus {
		return MachineStatus{Machine: cloud.Machine{Request: cloud.Request{Name: "system"}, System: true}, Node: node}
	}
	for _, test := range []struct {
		reason string
		status Status
		want   string
	}{
		{"all is well", Status{Components: []process.State{{Name: "etcd", Running: true}}, Machines: []MachineStatus{system("Ready")}}, ""},
		{"a program has ended", Status{Components: []process.State{{Name: "etcd", LastExit: "exit status 1"}}}, "etcd to run again, after exit status 1"},
		{"the cloud's own node is not ready", Status{Machines: []MachineStatus{system("NotReady")}}, "node system to be ready"},
		{"a customer's machine is the customer's concern", Status{Machines: []MachineStatus{{Node: "NotReady"}}}, ""},
	} {
		t.Run(test.reason, func(t *testing.T) {
			if got := ailing(test.status); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := newProgress(began)
	steps := []struct {
		reason string
		do     func()
		want   Status
	}{
		{"a stage begins", func() { p.enter("API server") }, Status{Stage: "API server"}},
		{"it waits", func() { p.wait("etcd") }, Status{Stage: "API server", Waiting: "etcd"}},
		{"and is told why", func() { p.answer(errors.New("refused")) }, Status{Stage: "API server", Waiting: "etcd", Answer: "refused"}},
		{"until it is told no more", func() { p.answer(nil) }, Status{Stage: "API server", Waiting: "etcd"}},
		{"the next stage knows nothing of it", func() { p.enter("controllers") }, Status{Stage: "controllers"}},
		{"the end", p.done, Status{Stage: "ready", Ready: true}},
	}
	for _, step := range steps {
		step.do()
		step.want.Started = began
		if diff := cmp.Diff(step.want, p.status()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.reason, diff)
		}
	}
}

// TestProxy talks through the proxy to a server that answers only after its client has closed its half of the
// connection.
func TestProxy(t *testing.T) {
	server := listen(t)
	go func() {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		said, _ := io.ReadAll(conn)
		_, _ = conn.Write([]byte("you said " + string(said)))
		_ = conn.Close()
	}()
	front := listen(t)
	go proxy(front, func(ctx context.Context) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "tcp4", server.Addr().String())
	})
	if got := say(t, front, "hello"); got != "you said hello" {
		t.Errorf("got %q", got)
	}
}

func TestProxyWithoutAServer(t *testing.T) {
	front := listen(t)
	go proxy(front, func(context.Context) (net.Conn, error) { return nil, errors.New("nobody there") })
	if got := say(t, front, ""); got != "" {
		t.Errorf("got %q, want a closed connection", got)
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

func say(t *testing.T, to net.Listener, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp4", to.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	half, ok := conn.(*net.TCPConn)
	if !ok {
		t.Fatal("not a TCP connection")
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	heard, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(heard)
}
