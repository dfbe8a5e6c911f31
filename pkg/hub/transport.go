// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"net"
	"net/http"
	"time"
)

const (
	connectTimeout = 10 * time.Second
	headerTimeout  = 30 * time.Second
	keepAlive      = 15 * time.Second
)

// NewHTTPClient returns a client with deadlines for the connection and for the first byte of an answer. It keeps up to
// the given number of connections to each host open. It honours HTTPS_PROXY and similar variables.
//
// HTTP/2 is off: it would put all ranges of a file on one TCP connection, and a single connection is slow over a long
// distance.
func NewHTTPClient(connections int) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: connectTimeout, KeepAlive: keepAlive}).DialContext,
		TLSHandshakeTimeout:   connectTimeout,
		ResponseHeaderTimeout: headerTimeout,
		MaxIdleConnsPerHost:   connections,
		IdleConnTimeout:       90 * time.Second,
		Protocols:             protocols,
		ReadBufferSize:        256 << 10,
	}}
}
