// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
)

const maxRedirects = 10

// followEverywhere is for bodies: a hub sends large files from other hosts, with a signed URL that needs no token.
//
// net/http alone would hand the token to subdomains and other ports of the
// first host, so it is taken off here, for good, at the first step off the
// endpoint's origin.
func (c *Client) followEverywhere(base *http.Client) *http.Client {
	client := *base
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) >= maxRedirects {
			return errRedirects
		}
		if !c.isHome(req.URL) || !c.allHome(via) {
			req.Header.Del("Authorization")
			req.Header.Del("Cookie")
		}
		return nil
	}
	return &client
}

// followAtHome is for metadata: the hub's own answers have the data of a file, including renames and caches; a CDN
// has none.
func (c *Client) followAtHome(base *http.Client) *http.Client {
	client := *base
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) >= maxRedirects {
			return errRedirects
		}
		if !c.isHome(req.URL) {
			return http.ErrUseLastResponse
		}
		return nil
	}
	return &client
}

// isHome reports whether u has the endpoint's origin: scheme, host and port.
func (c *Client) isHome(u *url.URL) bool {
	return u.Scheme == c.endpoint.Scheme && strings.EqualFold(hostPort(u), hostPort(c.endpoint))
}

func (c *Client) allHome(requests []*http.Request) bool {
	for _, r := range requests {
		if !c.isHome(r.URL) {
			return false
		}
	}
	return true
}

func hostPort(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return u.Hostname() + ":" + port
}

// origin is the printable part of an address: the query of a signed URL is secret.
func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

// withoutQuery keeps the cause of a failed request and drops its URL.
func withoutQuery(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}
