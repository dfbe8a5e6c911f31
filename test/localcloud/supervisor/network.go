// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modelberth/modelberth/test/localcloud/controlplane"
	"github.com/modelberth/modelberth/test/localcloud/netspace"
	"github.com/modelberth/modelberth/test/localcloud/process"
)

// dialDeadline bounds a connection into the private network.
const dialDeadline = 5 * time.Second

// proxy forwards each connection through dial, until the listener closes.
func proxy(listener net.Listener, dial func(context.Context) (net.Conn, error)) {
	for {
		outer, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = outer.Close() }()
			ctx, cancel := context.WithTimeout(context.Background(), dialDeadline)
			defer cancel()
			inner, err := dial(ctx)
			if err != nil {
				return // the client sees the connection close, as from a dead server
			}
			defer func() { _ = inner.Close() }()
			splice(outer, inner)
		}()
	}
}

// splice copies both ways until both sides have said all they had to say.
func splice(a, b net.Conn) {
	var both sync.WaitGroup
	copyTo := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
	both.Go(func() { copyTo(a, b) })
	both.Go(func() { copyTo(b, a) })
	both.Wait()
}

// inside starts processes in the private network. They die with this process.
type inside struct {
	space   *netspace.Space
	records string
	name    string
}

// Start implements process.Starter.
func (i inside) Start(cmd *exec.Cmd) (func() error, error) {
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL, Setsid: true}
	if err := i.space.Start(cmd); err != nil {
		return nil, err
	}
	identity, err := process.Identify(cmd.Process.Pid)
	if err == nil {
		err = identity.Record(i.records, i.name)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, fmt.Errorf("recording the process: %w", errors.Join(err, cmd.Wait()))
	}
	return cmd.Wait, nil
}

// prober asks one program whether it is ready.
type prober struct {
	client *http.Client
	url    string
}

func newProber(space *netspace.Space, probe controlplane.Probe) prober {
	scheme := "http"
	if probe.TLS {
		scheme = "https"
	}
	return prober{
		url: scheme + "://" + probe.Address + probe.Path,
		client: &http.Client{
			Timeout: 2 * time.Second,
			Transport: &http.Transport{
				DisableKeepAlives: true,
				DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
					return space.Dial(ctx, address)
				},
				// See controlplane.Probe: no other process can impersonate the program.
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // private network, no secret
			},
		},
	}
}

func (p prober) ask(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, http.NoBody)
	if err != nil {
		return fmt.Errorf("requesting %s: %w", p.url, err)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", p.url, response.Status)
	}
	return nil
}

// discardLog returns a logger for net/http that drops its complaints about lost clients.
func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }
