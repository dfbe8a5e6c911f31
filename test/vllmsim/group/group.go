// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package group joins the machines of one model, over the leader's address, as torch's process group does: no member
// continues before all have joined. The loss of a member is not detected, but every later step waits for it. A member
// cannot join again.
//
// It decides who is a member and when a step is done. It must not know a step's computation.
//
// One thing is stricter than the original: the leader refuses a member with other flags, and names the flag. The
// original would hang.
package group

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"time"
)

// hello is a member's first line.
type hello struct {
	Rank  int               `json:"rank"`
	Shape map[string]string `json:"shape"`
}

// word is every later line.
type word struct {
	// Error ends the member.
	Error string `json:"error,omitempty"`
	// Say is go, loaded, start or step.
	Say string `json:"say,omitempty"`
}

// link is one connection, line by line.
type link struct {
	conn  net.Conn
	lines *bufio.Scanner
}

func newLink(conn net.Conn) *link {
	const longest = 1 << 20
	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, 0, 4096), longest)
	return &link{conn: conn, lines: lines}
}

func (l *link) send(v any) error {
	return json.NewEncoder(l.conn).Encode(v)
}

func (l *link) receive(v any) error {
	if !l.lines.Scan() {
		return errors.Join(errors.New("the other side is gone"), l.lines.Err())
	}
	return json.Unmarshal(l.lines.Bytes(), v)
}

func (l *link) expect(say string) error {
	var w word
	if err := l.receive(&w); err != nil {
		return err
	}
	if w.Error != "" {
		return errors.New(w.Error)
	}
	if w.Say != say {
		return fmt.Errorf("the other side sent %q instead of %q", w.Say, say)
	}
	return nil
}

// Leader is rank 0 of a group.
type Leader struct {
	listener net.Listener
	shape    map[string]string
	links    map[int]*link
	// turn is taken by the step under way, and kept by an endless one.
	turn chan struct{}
}

// Lead waits until all other ranks of a group of size are there.
func Lead(ctx context.Context, address string, size int, shape map[string]string) (*Leader, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for %d ranks: %w", size-1, err)
	}
	l := &Leader{listener: listener, shape: shape, links: map[int]*link{}, turn: make(chan struct{}, 1)}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for len(l.links) < size-1 {
		if err := l.admit(size); err != nil {
			_ = listener.Close()
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("timed out: %d of %d ranks joined: %w", len(l.links)+1, size, ctx.Err())
		}
	}
	for _, rank := range slices.Sorted(maps.Keys(l.links)) {
		if err := l.links[rank].send(word{Say: "go"}); err != nil {
			return nil, fmt.Errorf("starting rank %d: %w", rank, err)
		}
	}
	go l.ignore()
	return l, nil
}

// admit takes the next member. A member with a taken rank waits without an answer.
func (l *Leader) admit(size int) error {
	conn, err := l.listener.Accept()
	if err != nil {
		return fmt.Errorf("timed out: %d of %d ranks joined: %w", len(l.links)+1, size, err)
	}
	member := newLink(conn)
	h, introduced := member.introduction()
	if !introduced {
		// A probe of the port, or somebody who left.
		_ = conn.Close()
		return nil
	}
	if h.Rank < 1 || h.Rank >= size {
		_ = member.send(word{Error: fmt.Sprintf("rank %d is not in a group of %d", h.Rank, size)})
		return fmt.Errorf("rank %d is not in a group of %d", h.Rank, size)
	}
	if difference := differ(l.shape, h.Shape); difference != "" {
		_ = member.send(word{Error: difference})
		return fmt.Errorf("rank %d: %s", h.Rank, difference)
	}
	if l.links[h.Rank] != nil {
		go hold(conn)
		return nil
	}
	l.links[h.Rank] = member
	return nil
}

// introduction is a member's first line, if it comes soon.
func (l *link) introduction() (h hello, ok bool) {
	const patience = 10 * time.Second
	_ = l.conn.SetReadDeadline(time.Now().Add(patience))
	err := l.receive(&h)
	_ = l.conn.SetReadDeadline(time.Time{})
	return h, err == nil
}

// ignore lets those who come late wait, as the store of a running group does.
func (l *Leader) ignore() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return
		}
		go hold(conn)
	}
}

// hold answers nothing until the other side leaves.
func hold(conn net.Conn) {
	_, _ = io.Copy(io.Discard, conn)
	_ = conn.Close()
}

func differ(ours, theirs map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		if other, ok := theirs[name]; !ok || other != ours[name] {
			return fmt.Sprintf("%s is %q on rank 0 and %q here", name, ours[name], other)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		if _, ok := ours[name]; !ok {
			return fmt.Sprintf("%s is not given on rank 0 and %q here", name, theirs[name])
		}
	}
	return ""
}

// Loaded waits until all members have their weights, and starts them.
func (l *Leader) Loaded(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- l.loaded() }()
	select {
	case err := <-done:
		if err == nil {
			return nil
		}
		// The group waits for a lost member.
		<-ctx.Done()
		return fmt.Errorf("a rank was lost while weights were loaded: %w", errors.Join(err, ctx.Err()))
	case <-ctx.Done():
		return fmt.Errorf("waiting for all ranks to load: %w", ctx.Err())
	}
}

func (l *Leader) loaded() error {
	for _, rank := range slices.Sorted(maps.Keys(l.links)) {
		if err := l.links[rank].expect("loaded"); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	return l.tell("start")
}

func (l *Leader) tell(say string) error {
	for _, rank := range slices.Sorted(maps.Keys(l.links)) {
		if err := l.links[rank].send(word{Say: say}); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	return nil
}

// Step has every member do its part once. If one is lost it waits until ctx ends, and so does every
// later step.
func (l *Leader) Step(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	done := make(chan struct{})
	go func() {
		if l.round() != nil {
			return
		}
		<-l.turn
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Leader) round() error {
	if err := l.tell("step"); err != nil {
		return err
	}
	for _, rank := range slices.Sorted(maps.Keys(l.links)) {
		if err := l.links[rank].expect("step"); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	return nil
}

// Member is a rank above 0.
type Member struct{ link *link }

// redial is the pause between a member's tries to reach a missing leader.
const redial = 100 * time.Millisecond

// Join finds the leader and waits until all ranks are there.
func Join(ctx context.Context, address string, rank int, shape map[string]string) (*Member, error) {
	conn, err := dial(ctx, address)
	if err != nil {
		return nil, err
	}
	m := &Member{link: newLink(conn)}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := m.link.send(hello{Rank: rank, Shape: shape}); err != nil {
		return nil, fmt.Errorf("joining %s as rank %d: %w", address, rank, err)
	}
	if err := m.link.expect("go"); err != nil {
		return nil, fmt.Errorf("joining %s as rank %d: %w", address, rank, errors.Join(err, ctx.Err()))
	}
	return m, nil
}

func dial(ctx context.Context, address string) (net.Conn, error) {
	ticker := time.NewTicker(redial)
	defer ticker.Stop()
	for {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the client socket has timed out while trying to connect to %s: %w", address, err)
		case <-ticker.C:
		}
	}
}

// Loaded reports the weights as loaded, and waits until they are everywhere.
func (m *Member) Loaded(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = m.link.conn.Close() })
	defer stop()
	if err := m.link.send(word{Say: "loaded"}); err != nil {
		return fmt.Errorf("reporting that the weights are loaded: %w", err)
	}
	if err := m.link.expect("start"); err != nil {
		return fmt.Errorf("waiting for all ranks to load: %w", errors.Join(err, ctx.Err()))
	}
	return nil
}

// Work does steps until the leader is lost or ctx ends.
func (m *Member) Work(ctx context.Context, step func()) error {
	stop := context.AfterFunc(ctx, func() { _ = m.link.conn.Close() })
	defer stop()
	for {
		if err := m.link.expect("step"); err != nil {
			return err
		}
		step()
		if err := m.link.send(word{Say: "step"}); err != nil {
			return err
		}
	}
}
