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

// followEverywhere returns a client for bodies. A hub sends large files from other hosts, with a signed URL that needs
// no token.
//
// net/http alone would send the token to subdomains and other ports of the first host. So the client removes the token
// for good at the first redirect to another origin.
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

// followAtHome returns a client for metadata. It follows redirects within the hub's origin, such as renames. The hub's
// own answers have a file's metadata; a CDN's do not.
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

// origin returns the printable part of a URL. The query of a signed URL is secret.
func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

// withoutQuery returns the cause of a failed request without its URL.
func withoutQuery(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}
