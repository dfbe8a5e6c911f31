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

// inbox receives the messages of a stream, one at a time. Its context ends with the stream, also while nobody reads: a
// gateway may end a stream by closing its own side only.
type inbox struct {
	ctx      context.Context //nolint:containedctx // it is that of the stream
	messages chan *extprocv3.ProcessingRequest
	// isAnswered: the router has answered the messages of the request, so those of the answer may follow.
	isAnswered atomic.Bool
}

// newInbox starts to receive. It calls cancel at the end of the stream.
func newInbox(ctx context.Context, cancel context.CancelFunc, stream extprocv3.ExternalProcessor_ProcessServer) *inbox {
	out := &inbox{ctx: ctx, messages: make(chan *extprocv3.ProcessingRequest)}
	go func() {
		defer cancel()
		for {
			message, err := stream.Recv() // it ends with the call of Process
			if err != nil || !out.isAnswered.Load() && isOfAnswer(message) {
				return // in the second case, the gateway has answered the client itself
			}
			select {
			case out.messages <- message:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// isOfAnswer reports whether a message is a part of the answer.
func isOfAnswer(message *extprocv3.ProcessingRequest) bool {
	return message.GetResponseHeaders() != nil || message.GetResponseBody() != nil || message.GetResponseTrailers() != nil
}

// next returns the next message, or nil at the end of the stream.
func (i *inbox) next() (*extprocv3.ProcessingRequest, error) {
	select {
	case message := <-i.messages:
		return message, nil
	case <-i.ctx.Done():
		return nil, i.ended()
	}
}

// ended returns the error for the end of the stream. It is nil only once the router has answered the request: at a clean
// end before, a gateway would send the request to any replica of the pool, without limits.
func (i *inbox) ended() error {
	switch {
	case errors.Is(i.ctx.Err(), context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the request took too long")
	case !i.isAnswered.Load():
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
	case message := <-b.inbox.messages:
		switch {
		case message.GetRequestBody() != nil:
			b.rest, b.isWhole = message.GetRequestBody().GetBody(), message.GetRequestBody().GetEndOfStream()
		case message.GetRequestTrailers() != nil:
			b.isWhole, b.hasTrailers = true, true
		default:
			return errors.New("the gateway sent something else")
		}
		return nil
	case <-timer.C():
		return os.ErrDeadlineExceeded
	case <-b.inbox.ctx.Done():
		return b.inbox.ctx.Err()
	}
}

// Close implements io.Closer.
func (b *bodyReader) Close() error { return nil }
