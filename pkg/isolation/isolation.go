// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package isolation checks whether the network keeps other pods from the pods of a group. The engines of a group
// execute anything that reaches their ports, and a network plug-in that ignores NetworkPolicies reports no error.
//
// It decides from one observation. The controller's own pod is not a member of any group, so it must fail to reach a
// port for peers, while another port of the same pod answers. It must not know Kubernetes, plans, or the consequences
// of a result.
package isolation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// Member is one pod of a group.
type Member struct {
	// Name of the pod, for messages. ID identifies it in its agent's answer.
	Name, ID string
	// IP of the pod.
	IP string
}

// Outcome of a probe.
type Outcome string

// Outcomes.
const (
	// Isolated: pods outside the group do not reach the ports for peers.
	Isolated Outcome = "Isolated"
	// Exposed: pods outside the group reach them.
	Exposed Outcome = "Exposed"
	// Unknown: the probe proves nothing, for example because a pod does not answer at all.
	Unknown Outcome = "Unknown"
)

// Finding is an outcome with its evidence.
type Finding struct {
	Outcome Outcome
	// Message describes the evidence; empty for Isolated.
	Message string
}

const (
	// dialTimeout allows for one lost packet: the kernel sends it again after a second.
	dialTimeout = 2500 * time.Millisecond
	readTimeout = time.Second
	maxAnswer   = 4 << 10
)

// Prober probes pods. Tests replace Dial.
type Prober struct {
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Everybody may reach OpenPort of a pod, and only its peers may reach PeerPort. Both answer on Path.
	OpenPort, PeerPort int
	Path               string
}

// Probe returns Isolated only if no member can be reached on its peer port, and Exposed if any member can.
func (p Prober) Probe(ctx context.Context, members []Member) Finding {
	findings := make([]Finding, len(members))
	var all errgroup.Group
	for i, member := range members {
		all.Go(func() error {
			findings[i] = p.probe(ctx, member)
			return nil
		})
	}
	_ = all.Wait() // no function returns an error
	worst := Finding{Outcome: Isolated}
	for _, found := range findings {
		if severity(found.Outcome) > severity(worst.Outcome) {
			worst = found
		}
	}
	if len(members) == 0 {
		return Finding{Unknown, "there is no pod to probe"}
	}
	return worst
}

func severity(o Outcome) int {
	return map[Outcome]int{Isolated: 0, Unknown: 1, Exposed: 2}[o]
}

// probe tries the open port before and after the peer port. Otherwise a silent peer port would prove nothing: the pod
// may be gone, or the controller may have no network.
func (p Prober) probe(ctx context.Context, m Member) Finding {
	if err := p.identify(ctx, m, p.OpenPort); err != nil {
		return Finding{Unknown, fmt.Sprintf("pod %s cannot be probed: %v", m.Name, err)}
	}
	dialError := (*blockedError)(nil)
	switch err := p.identify(ctx, m, p.PeerPort); {
	case err == nil:
		return Finding{Exposed, fmt.Sprintf("the controller's pod reached port %d of pod %s, although the NetworkPolicy of that pod admits "+
			"only the other pods of its group", p.PeerPort, m.Name)}
	case !errors.As(err, &dialError):
		return Finding{Unknown, fmt.Sprintf("pod %s accepts connections on port %d but does not answer as expected: %v", m.Name, p.PeerPort, err)}
	}
	if err := p.identify(ctx, m, p.OpenPort); err != nil {
		return Finding{Unknown, fmt.Sprintf("pod %s stopped answering while it was probed: %v", m.Name, err)}
	}
	return Finding{Outcome: Isolated}
}

// blockedError means that no connection was made.
type blockedError struct{ err error }

func (e *blockedError) Error() string { return e.err.Error() }
func (e *blockedError) Unwrap() error { return e.err }

// identify returns nil if the member itself answers on a port.
func (p Prober) identify(ctx context.Context, m Member, port int) error {
	address := net.JoinHostPort(m.IP, strconv.Itoa(port))
	dialing, stop := context.WithTimeout(ctx, dialTimeout)
	conn, err := p.Dial(dialing, "tcp", address)
	stop()
	if ctx.Err() != nil { // the pass is over, and this says nothing about the network
		return ctx.Err()
	}
	if err != nil {
		return &blockedError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	connected := func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, DialContext: connected},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+p.Path, http.NoBody)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		ID string `json:"id"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&answer); err != nil || answer.ID != m.ID {
		return fmt.Errorf("%s belongs to %s and not to pod %s", address, cmp.Or(answer.ID, "something else"), m.ID)
	}
	return nil
}
