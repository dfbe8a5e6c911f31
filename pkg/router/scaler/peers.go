// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"
)

// Limits of a question to all other routers.
const (
	peerDeadline = 2 * time.Second
	peersAtOnce  = 8
	mostPeers    = 64
	// lookUpLife is how long the addresses of the routers are used.
	lookUpLife = 5 * time.Second
)

// Peers are the other routers. Their addresses come from a headless Service. It also lists starting and ending routers,
// because these may still have requests.
type Peers struct {
	host, port string
	creds      credentials.TransportCredentials
	lookUp     func(ctx context.Context, host string) ([]string, error)
	own        func() ([]net.Addr, error)
	clock      clock.PassiveClock

	mu    sync.Mutex
	at    time.Time
	known map[string]*peer
}

// peer is the connection to one router.
type peer struct {
	address string
	conn    *grpc.ClientConn
	// isGone: the last dial was refused.
	isGone atomic.Bool
	// silentSince is when dials began to fail, in nanoseconds; 0 after a success.
	silentSince atomic.Int64
}

// silentFor is how long a router may fail to accept connections before it counts as gone. The node of a router may hang:
// its pod then stays, and keeps its address, until somebody deletes the node.
const silentFor = time.Minute

// dialed records the result of a dial.
func (p *peer) dialed(now time.Time, err error) {
	p.isGone.Store(errors.Is(err, syscall.ECONNREFUSED))
	if err == nil {
		p.silentSince.Store(0)
		return
	}
	p.silentSince.CompareAndSwap(0, now.UnixNano())
}

// hasNone reports whether a silent router counts as a router without requests.
func (p *peer) hasNone(now time.Time) bool {
	since := p.silentSince.Load()
	return p.isGone.Load() || since != 0 && now.Sub(time.Unix(0, since)) >= silentFor
}

// NewPeers returns the routers behind a Service, HOST:PORT; none if the address is empty.
func NewPeers(address string, creds credentials.TransportCredentials, now clock.PassiveClock) (*Peers, error) {
	out := &Peers{
		creds: creds, lookUp: net.DefaultResolver.LookupHost, own: net.InterfaceAddrs, clock: now, known: map[string]*peer{},
	}
	if address == "" {
		return out, nil
	}
	var err error
	if out.host, out.port, err = net.SplitHostPort(address); err != nil {
		return nil, fmt.Errorf("the address of the routers: %w", err)
	}
	return out, nil
}

// Ask implements Others. A router that refuses the connection does not run, so it has no requests.
func (p *Peers) Ask(ctx context.Context, method string, in proto.Message, out func() proto.Message) ([]proto.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, peerDeadline)
	defer cancel()
	all, err := p.all(ctx)
	if err != nil {
		return nil, err
	}
	answers, problems := make([]proto.Message, len(all)), make([]error, len(all))
	group := errgroup.Group{}
	group.SetLimit(peersAtOnce)
	for i, each := range all {
		group.Go(func() error {
			answer := out()
			err := each.conn.Invoke(ctx, "/"+service+"/"+method, in, answer)
			switch {
			case err == nil:
				answers[i] = answer
			case isUnreachable(err) && each.hasNone(p.clock.Now()):
			default:
				problems[i] = status.Errorf(codes.Unavailable, "the router at %s does not answer, so the sum of all routers is unknown: %v", each.address, err)
			}
			return nil
		})
	}
	_ = group.Wait() // each router has its own problem
	answers = slices.DeleteFunc(answers, func(m proto.Message) bool { return m == nil })
	return answers, errors.Join(problems...)
}

// isUnreachable reports whether a router did not answer at all.
func isUnreachable(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// all returns the connections to the other routers.
func (p *Peers) all(ctx context.Context) ([]*peer, error) {
	if p.host == "" {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.IsZero() || p.clock.Since(p.at) >= lookUpLife {
		if err := p.refresh(ctx); err != nil {
			return nil, status.Errorf(codes.Unavailable, "the other routers cannot be found: %v", err)
		}
		p.at = p.clock.Now()
	}
	out := make([]*peer, 0, len(p.known))
	for _, each := range p.known {
		out = append(out, each)
	}
	return out, nil
}

// refresh looks up the routers, and keeps the connections to the remaining ones.
func (p *Peers) refresh(ctx context.Context) error {
	hosts, err := p.lookUp(ctx, p.host)
	if err != nil {
		return err
	}
	own, err := p.own()
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(hosts), func(host string) bool { return isOwn(host, own) })
	if len(others) > mostPeers {
		return fmt.Errorf("there are more than %d", mostPeers)
	}
	for _, host := range others {
		address := net.JoinHostPort(host, p.port)
		if p.known[address] != nil {
			continue
		}
		if p.known[address], err = p.connect(address); err != nil {
			delete(p.known, address)
			return err
		}
	}
	for address, each := range p.known {
		if host, _, _ := net.SplitHostPort(address); !slices.Contains(others, host) {
			_ = each.conn.Close()
			delete(p.known, address)
		}
	}
	return nil
}

// isOwn reports whether an address is one of this machine.
func isOwn(host string, own []net.Addr) bool {
	parsed := net.ParseIP(host)
	return slices.ContainsFunc(own, func(a net.Addr) bool {
		network, ok := a.(*net.IPNet)
		return ok && network.IP.Equal(parsed)
	})
}

// connect prepares the connection to a router. The first question dials.
func (p *Peers) connect(address string) (*peer, error) {
	out := &peer{address: address}
	var dialer net.Dialer
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(p.creds),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, "tcp", to)
			out.dialed(p.clock.Now(), err)
			return conn, err
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second},
			MinConnectTimeout: peerDeadline,
		}))
	out.conn = conn
	return out, err
}

// Close closes all connections.
func (p *Peers) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, each := range p.known {
		_ = each.conn.Close()
		delete(p.known, address)
	}
}
