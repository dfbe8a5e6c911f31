// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package extproc

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"
)

// inbox receives the messages of a stream, one at a time. Its context ends with the stream, even without a reader: a
// gateway may end a stream by closing its own side only.
type inbox struct {
	ctx context.Context //nolint:containedctx // the stream's context
	// choice is the context of the choice: it ends also with the first part of an answer of the gateway itself.
	choice context.Context //nolint:containedctx // as above
	// requests has the parts of the request, and answers has the parts of the answer.
	requests, answers chan *extprocv3.ProcessingRequest
	state             atomic.Int32
}

// The states of an inbox.
const (
	// isOpen: neither the router nor the gateway has decided about the request.
	isOpen int32 = iota
	// isDecided: the router has decided. What follows is the answer of the replica.
	isDecided
	// isAnsweredByGateway: the gateway sent a part of an answer before the router decided, so the answer is its own: an
	// earlier filter refused the request, or its body is too large or too slow.
	isAnsweredByGateway
)

// newInbox starts to receive. It calls cancel at the end of the stream.
func newInbox(ctx context.Context, cancel context.CancelFunc, stream extprocv3.ExternalProcessor_ProcessServer) *inbox {
	choice, giveUp := context.WithCancel(ctx)
	out := &inbox{
		ctx: ctx, choice: choice,
		requests: make(chan *extprocv3.ProcessingRequest), answers: make(chan *extprocv3.ProcessingRequest),
	}
	go func() {
		defer cancel()
		defer giveUp()
		for {
			message, err := stream.Recv() // it ends with the call of Process
			if err != nil {
				return
			}
			to := out.requests
			if isOfAnswer(message) {
				to = out.answers
				if out.state.CompareAndSwap(isOpen, isAnsweredByGateway) {
					giveUp()
				}
			} else if out.state.Load() == isAnsweredByGateway {
				continue // nobody reads the rest of the request
			}
			select {
			case to <- message:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// decide records that the router has decided about the request. It returns false if the gateway has answered it before.
func (i *inbox) decide() bool { return i.state.CompareAndSwap(isOpen, isDecided) }

// isOfAnswer reports whether a message is a part of the answer.
func isOfAnswer(message *extprocv3.ProcessingRequest) bool {
	return message.GetResponseHeaders() != nil || message.GetResponseBody() != nil || message.GetResponseTrailers() != nil
}

// next returns the next message, or nil at the end of the stream.
func (i *inbox) next() (*extprocv3.ProcessingRequest, error) {
	select {
	case message := <-i.requests:
		return message, nil
	case message := <-i.answers:
		return message, nil
	case <-i.ctx.Done():
		return nil, i.ended()
	}
}

// ended returns the error for the end of the stream. It is nil only once the request is decided or answered: at a clean end
// before, a gateway would send the request to any replica of the pool, without limits.
func (i *inbox) ended() error {
	switch {
	case errors.Is(i.ctx.Err(), context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the request took too long")
	case i.state.Load() == isOpen:
		return status.Error(codes.Canceled, "the stream ended before the request had a replica")
	}
	return nil
}

// bodyReader reads the body of a request from its messages.
type bodyReader struct {
	inbox *inbox
	clock clock.WithTicker
	// end is when the body must have arrived.
	end  time.Time
	rest []byte
	// isWhole: the body has arrived. hasTrailers: trailers follow it.
	isWhole, hasTrailers bool
}

// Read implements io.Reader.
func (b *bodyReader) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if b.isWhole {
			return 0, io.EOF
		}
		if err := b.receive(); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// receive takes the next message.
func (b *bodyReader) receive() error {
	timer := b.clock.NewTimer(b.end.Sub(b.clock.Now()))
	defer timer.Stop()
	select {
	case message := <-b.inbox.requests:
		switch {
		case message.GetRequestBody() != nil:
			b.rest, b.isWhole = message.GetRequestBody().GetBody(), message.GetRequestBody().GetEndOfStream()
		case message.GetRequestTrailers() != nil:
			b.isWhole, b.hasTrailers = true, true
		default:
			return errors.New("the gateway sent a message that is neither a body nor trailers")
		}
		return nil
	case <-timer.C():
		return os.ErrDeadlineExceeded
	case <-b.inbox.choice.Done():
		return b.inbox.choice.Err()
	}
}

// Close implements io.Closer.
func (b *bodyReader) Close() error { return nil }
