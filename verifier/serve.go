// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	// deadline of a connection: the controller gives up sooner.
	deadline = 10 * time.Second
	// mostConnections are served at once; the controller opens four.
	mostConnections = 8
)

// server answers requests.
type server struct {
	log *slog.Logger
	// trustedRoot is read for each request, so a change needs no restart.
	trustedRoot string
}

// serve answers until the context ends, then finishes the open requests.
func (s *server) serve(ctx context.Context, listener net.Listener) error {
	var group sync.WaitGroup
	defer group.Wait()
	turns := make(chan struct{}, mostConnections)
	for {
		connection, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting a connection: %w", err)
		}
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			s.answer(connection)
		})
	}
}

// answer reads one request and answers it.
func (s *server) answer(connection net.Conn) {
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(deadline)); err != nil {
		return
	}
	said := answerTo(s.verify(connection))
	if err := json.NewEncoder(connection).Encode(said); err != nil {
		s.log.Info("the client did not wait for its answer", "error", err.Error())
		return
	}
	s.log.Info("answered", "verified", said.Verified, "problem", said.Problem)
}

func (s *server) verify(connection net.Conn) error {
	asked, err := readRequest(connection)
	if err != nil {
		return err
	}
	trusted, err := readTrustedRoot(s.trustedRoot)
	if err != nil {
		return err
	}
	return verifySignature(trusted, asked)
}
