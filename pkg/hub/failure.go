// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/modelberth/modelberth/pkg/redact"
)

// errNoAnswer is the context's cause if a call exceeds its own deadline.
var errNoAnswer = errors.New("no answer")

// errRedirects is returned if a repository redirects too often.
var errRedirects = fmt.Errorf("more than %d redirects", maxRedirects)

// failed returns the error of a failed request. It distinguishes a cancelled call from a server that did not answer.
func (c *Client) failed(ctx context.Context, f File, err error) error {
	return c.failedAt(ctx, c.serverOf(err), 0, f, err)
}

// broke is failed for a connection that broke within an answer.
func (c *Client) broke(ctx context.Context, f File, resp *http.Response, err error) error {
	return c.failedAt(ctx, c.shown(resp.Request.URL), resp.StatusCode, f, err)
}

func (c *Client) failedAt(ctx context.Context, server string, status int, f File, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(err, errRedirects):
		return &MalformedError{Endpoint: server, File: f, Err: errRedirects}
	case cause == nil:
		cause = redact.Error(withoutQuery(err))
	case errors.Is(cause, errNoAnswer):
		cause = fmt.Errorf("%w within %s", errNoAnswer, c.answerTimeout)
	default:
		return fmt.Errorf("hub: %s: %w", f, cause)
	}
	return &UnreachableError{Endpoint: server, File: f, Status: status, Err: cause}
}

func (c *Client) malformed(f File, err error) error {
	return &MalformedError{Endpoint: c.Endpoint(), File: f, Err: err}
}

// serverOf returns the server of a failed request: the hub, or the target of its redirect.
func (c *Client) serverOf(err error) string {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		if to, err := url.Parse(failed.URL); err == nil && to.Host != "" {
			return c.shown(to)
		}
	}
	return c.Endpoint()
}

// shown returns the printable part of a URL.
func (c *Client) shown(u *url.URL) string {
	if c.isHome(u) {
		return c.Endpoint()
	}
	return origin(u)
}

// Outage returns an error about the hub as a whole, without the requested repository: the hub is unreachable, or a
// gateway in front of it reports that. It is nil for errors about one request.
func (c *Client) Outage(err error) *UnreachableError {
	away, ok := errors.AsType[*UnreachableError](err)
	if !ok || away.Endpoint != c.Endpoint() {
		return nil
	}
	switch away.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	case 0:
		if !isTransport(away.Err) {
			return nil
		}
	default:
		return nil
	}
	return &UnreachableError{Endpoint: away.Endpoint, Status: away.Status, RetryAfter: away.RetryAfter, Err: away.Err}
}

// isTransport reports whether the connection, not the request, is the reason for a missing answer.
func isTransport(err error) bool {
	if errors.Is(err, errNoAnswer) || errors.Is(err, io.EOF) {
		return true
	}
	_, network := errors.AsType[net.Error](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	return network || certificate || record || alert
}
