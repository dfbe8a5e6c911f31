// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/modelberth/modelberth/test/localcloud/sku"
)

// maxRequest bounds a request's body.
const maxRequest = 1 << 20

// Handler serves the machine API:
//
//	GET    /skus              GET /script
//	GET    /machines          POST /machines
//	GET    /machines/{id}     DELETE /machines/{id}
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /skus", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.Catalogue(), nil) })
	mux.HandleFunc("GET /script", func(w http.ResponseWriter, _ *http.Request) {
		state, err := s.ScriptState()
		answer(w, state, err)
	})
	mux.HandleFunc("GET /machines", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.List(), nil) })
	mux.HandleFunc("GET /machines/{id}", func(w http.ResponseWriter, r *http.Request) {
		m, err := s.Get(r.PathValue("id"))
		answer(w, m, err)
	})
	mux.HandleFunc("DELETE /machines/{id}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, struct{}{}, s.Delete(r.PathValue("id")))
	})
	mux.HandleFunc("POST /machines", func(w http.ResponseWriter, r *http.Request) {
		var request Request
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&request); err != nil {
			answer(w, nil, &Error{Code: CodeInvalid, Message: "decoding the request: " + err.Error()})
			return
		}
		m, err := s.Create(request)
		answer(w, m, err)
	})
	return mux
}

func answer(w http.ResponseWriter, value any, err error) {
	status := http.StatusOK
	if err != nil {
		var refused *Error
		if !errors.As(err, &refused) {
			refused = &Error{Code: CodeInternal, Message: err.Error()}
		}
		value, status = refused, refused.Code.status()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A peer that hung up gets no answer.
	_ = json.NewEncoder(w).Encode(value)
}

func (c Code) status() int {
	switch c {
	case CodeInvalid:
		return http.StatusBadRequest
	case CodeNotFound:
		return http.StatusNotFound
	case CodeConflict, CodeNoCapacity:
		return http.StatusConflict
	case CodeQuota:
		return http.StatusForbidden
	case CodeUnavailable, CodeSilent:
		return http.StatusServiceUnavailable
	case CodeInternal:
	}
	return http.StatusInternalServerError
}

// Client talks to a Service over its unix socket.
type Client struct {
	http *http.Client
}

// callDeadline bounds every call, in addition to its context. The service answers at once: slow work follows the
// answer.
const callDeadline = 30 * time.Second

// NewClient returns a client for the socket.
func NewClient(socket string) *Client {
	return &Client{http: &http.Client{Transport: UnixTransport(socket), Timeout: callDeadline}}
}

// UnixTransport sends every request to the socket, regardless of its host.
func UnixTransport(socket string) *http.Transport {
	return &http.Transport{
		DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", socket)
		},
	}
}

// Catalogue lists the machine types for sale.
func (c *Client) Catalogue(ctx context.Context) ([]sku.SKU, error) {
	var out []sku.SKU
	err := c.Do(ctx, http.MethodGet, "/skus", nil, &out)
	return out, err
}

// Script returns the script and its uses so far.
func (c *Client) Script(ctx context.Context) (ScriptState, error) {
	var out ScriptState
	err := c.Do(ctx, http.MethodGet, "/script", nil, &out)
	return out, err
}

// Create asks for a machine.
func (c *Client) Create(ctx context.Context, request Request) (Machine, error) {
	var out Machine
	err := c.Do(ctx, http.MethodPost, "/machines", request, &out)
	return out, err
}

// Get returns the machine with the id.
func (c *Client) Get(ctx context.Context, id string) (Machine, error) {
	var out Machine
	err := c.Do(ctx, http.MethodGet, "/machines/"+url.PathEscape(id), nil, &out)
	return out, err
}

// List returns all machines.
func (c *Client) List(ctx context.Context) ([]Machine, error) {
	var out []Machine
	err := c.Do(ctx, http.MethodGet, "/machines", nil, &out)
	return out, err
}

// Delete ends the machine with the id.
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.Do(ctx, http.MethodDelete, "/machines/"+url.PathEscape(id), nil, nil)
}

// Do calls the service. A refusal comes back as an *Error.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encoding the request for %s %s: %w", method, path, err)
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://cloud"+path, body)
	if err != nil {
		return fmt.Errorf("requesting %s %s from the cloud: %w", method, path, err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("querying the cloud: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusBadRequest {
		return decodeError(response)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(out); err != nil {
		return fmt.Errorf("decoding the cloud's answer to %s %s: %w", method, path, err)
	}
	return nil
}

func decodeError(response *http.Response) error {
	refused := &Error{}
	if err := json.NewDecoder(response.Body).Decode(refused); err != nil || refused.Code == "" {
		return &Error{Code: CodeInternal, Message: "the cloud answered " + response.Status}
	}
	return refused
}
