// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Path is the HTTP path of a member's identity.
const Path = "/member"

const (
	// lookupTimeout is the part of askTimeout for the DNS lookup.
	lookupTimeout = 300 * time.Millisecond
	maxAnswer     = 4 << 10
)

// Handler serves the result of self.
func Handler(self func() Identity) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		// If the caller disconnects early, that is not our failure.
		_ = json.NewEncoder(w).Encode(self())
	})
}

// Client requests the identities of members. It is safe for concurrent use.
type Client struct {
	http *http.Client
	// lookUp and dial are seams for tests.
	lookUp func(ctx context.Context, host string) ([]string, error)
	dial   func(ctx context.Context, network, address string) (net.Conn, error)

	mu sync.Mutex
	// known holds the last working address of a host, so that an outage of DNS does not look like the loss of a member.
	known map[string]string
}

// NewClient returns a Client without a proxy. It opens a new connection for every request, so each request resolves the
// name again.
func NewClient() *Client {
	c := &Client{
		lookUp: net.DefaultResolver.LookupHost,
		dial:   new(net.Dialer).DialContext,
		known:  map[string]string{},
	}
	c.http = &http.Client{Timeout: askTimeout, Transport: &http.Transport{DialContext: c.connect, DisableKeepAlives: true}}
	return c
}

// Ask returns the identity of the member at HOST:PORT.
func (c *Client) Ask(ctx context.Context, peer string) (Identity, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+peer+Path, http.NoBody)
	if err != nil {
		return Identity{}, fmt.Errorf("querying member %q: %w", peer, err)
	}
	resp, err := c.http.Do(req)
	if wrapped := new(url.Error); errors.As(err, &wrapped) {
		err = wrapped.Err // without the URL, which would repeat the peer
	}
	if err != nil {
		return Identity{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	var id Identity
	switch err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&id); {
	case resp.StatusCode != http.StatusOK:
		return Identity{}, fmt.Errorf("member %q answers with status %d", peer, resp.StatusCode)
	case err != nil:
		return Identity{}, fmt.Errorf("member %q returned an invalid id: %w", peer, err)
	case id.ID == "":
		return Identity{}, fmt.Errorf("member %q returned no id", peer)
	}
	return id, nil
}

// connect dials the present addresses of the name, or the last known address if the lookup fails.
func (c *Client) connect(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	lookup, cancel := context.WithTimeout(ctx, lookupTimeout)
	addresses, err := c.lookUp(lookup, host)
	cancel()
	if err != nil {
		addresses = c.remembered(host)
	}
	if len(addresses) == 0 {
		return nil, errors.Join(err, ctx.Err())
	}
	for _, a := range addresses {
		var conn net.Conn
		if conn, err = c.dial(ctx, network, net.JoinHostPort(a, port)); err == nil {
			c.remember(host, a)
			return conn, nil
		}
	}
	return nil, err
}

func (c *Client) remembered(host string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a, ok := c.known[host]; ok {
		return []string{a}
	}
	return nil
}

func (c *Client) remember(host, address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[host] = address
}
