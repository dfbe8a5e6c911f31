// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/redact"
)

// errSilent is the context's cause if the client closes a connection because no data arrives.
var errSilent = errors.New("connection stalled")

// Range is the bytes [Start, End) of a file.
type Range struct {
	Start, End int64
}

// Len returns the number of bytes in the range.
func (r Range) Len() int64 { return r.End - r.Start }

// Open starts to read a non-empty range. The reader yields exactly the range, or an UnreachableError if the connection
// breaks, falls silent or ends early. The bytes before the error are valid, so a new range can start after them.
func (c *Client) Open(ctx context.Context, f File, r Range) (io.ReadCloser, error) {
	bounds := Bounds{Clock: c.clock, Answer: c.answerTimeout, Idle: c.idleTimeout}
	return bounds.Open(ctx, f, r, func(ctx context.Context) (io.ReadCloser, string, error) { return c.get(ctx, f, r) })
}

// Bounds limit the time until the first byte of a file, and the pause before each later byte.
type Bounds struct {
	Clock        clock.WithDelayedExecution
	Answer, Idle time.Duration
}

// Open works like Client.Open, but get provides the content and its origin.
func (bounds Bounds) Open(
	ctx context.Context, f File, r Range, get func(ctx context.Context) (src io.ReadCloser, from string, err error),
) (io.ReadCloser, error) {
	if r.Start < 0 || r.Len() <= 0 {
		return nil, fmt.Errorf("hub: %s: range %d-%d is empty", f, r.Start, r.End)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	unanswered := bounds.Clock.AfterFunc(bounds.Answer, func() { cancel(errNoAnswer) })
	src, from, err := get(ctx)
	unanswered.Stop()
	if err != nil {
		cancel(nil)
		return nil, err
	}
	b := &body{
		file: f, from: from, src: src, left: r.Len(),
		idle: bounds.Idle, cancel: cancel, cause: func() error { return context.Cause(ctx) },
	}
	b.silence = bounds.Clock.AfterFunc(bounds.Idle, func() { cancel(errSilent) })
	b.silence.Stop() // armed by each Read
	return b, nil
}

// get returns the content of a range, and the origin of the server that sends it.
func (c *Client) get(ctx context.Context, f File, r Range) (src io.ReadCloser, from string, err error) {
	req, err := c.newRequest(ctx, http.MethodGet, c.resolveURL(f))
	if err != nil {
		return nil, "", err
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", r.Start, r.End-1))
	resp, err := c.data.Do(req)
	if err != nil {
		return nil, "", c.failed(ctx, f, err)
	}
	if err := c.checkRange(f, r, resp); err != nil {
		_ = resp.Body.Close()
		return nil, "", err
	}
	return resp.Body, origin(resp.Request.URL), nil
}

// checkRange checks that the body begins at the requested byte. A server may ignore a range, which is harmless only at
// the start of a file.
func (c *Client) checkRange(f File, r Range, resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusOK:
		if r.Start == 0 {
			return nil
		}
		return &UnreachableError{
			Endpoint: origin(resp.Request.URL), File: f, Status: resp.StatusCode,
			Err: errors.New("the hub ignores byte ranges: use a hub that supports them"),
		}
	case http.StatusPartialContent:
		want := fmt.Sprintf("bytes %d-%d/", r.Start, r.End-1)
		if got := resp.Header.Get("Content-Range"); !strings.HasPrefix(got, want) {
			return &MalformedError{
				Endpoint: origin(resp.Request.URL), File: f,
				Err: fmt.Errorf("requested %s and got content range %q", strings.TrimSuffix(want, "/"), clean(got)),
			}
		}
		return nil
	}
	return c.classify(f, resp)
}

// body yields a range and watches for silence. The watch runs only during a Read, because a slow disk on our side is
// not the hub's silence.
type body struct {
	file    File
	from    string
	src     io.ReadCloser
	left    int64
	idle    time.Duration
	silence clock.Timer
	cancel  context.CancelCauseFunc
	cause   func() error
}

func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	b.silence.Reset(b.idle)
	n, err := b.src.Read(p)
	b.silence.Stop()
	b.left -= int64(n)
	if b.left == 0 {
		return n, nil
	}
	return n, b.explain(err)
}

func (b *body) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	switch cause := b.cause(); {
	case errors.Is(cause, errSilent):
		err = fmt.Errorf("%w for %s", errSilent, b.idle)
	case errors.Is(cause, errNoAnswer): // the timer fired as the answer arrived
		err = errNoAnswer
	case cause != nil:
		return fmt.Errorf("hub: %s: %w", b.file, cause)
	}
	return &UnreachableError{
		Endpoint: b.from, File: b.file, Status: http.StatusOK,
		Err: fmt.Errorf("connection ended %d bytes early: %w", b.left, redact.Error(withoutQuery(err))),
	}
}

func (b *body) Close() error {
	b.silence.Stop()
	b.cancel(nil)
	return b.src.Close()
}
