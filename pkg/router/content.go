// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/modelberth/modelberth/pkg/router/limit"
	"github.com/modelberth/modelberth/pkg/router/openai"
)

// firstRead is the size, in bytes, of a body's first buffer. The buffer grows only once the client has filled it.
const firstRead = 4 << 10

// content is a request body in memory. Its size counts toward the limits until done.
type content struct {
	text []byte
	size int64
	of   *Router
	from *limit.Client
}

func (c *content) done() {
	c.of.buffered.Add(-c.size)
	c.from.Hold(-c.size)
}

// read reads the body of a request, within the limits for its size, its time and the memory of all bodies.
func (r *Router) read(w http.ResponseWriter, req *http.Request, client *limit.Client) (*content, *openai.Error) {
	if encoding := req.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return nil, openai.Errorf(http.StatusUnsupportedMediaType, openai.CodeInvalidBody,
			"the body is encoded as %q: send it without Content-Encoding", encoding)
	}
	if req.ContentLength > r.settings.MaxBody {
		return nil, r.tooLarge()
	}
	out := &content{of: r, from: client}
	err := out.fill(req.Body)
	if err == nil {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		return out, nil
	}
	out.done()
	return nil, err
}

func (r *Router) tooLarge() *openai.Error {
	return openai.Errorf(http.StatusRequestEntityTooLarge, openai.CodeBodyTooLarge,
		"the body is larger than %d bytes: send a shorter prompt, or ask the administrator for a higher limit", r.settings.MaxBody)
}

func (c *content) fill(from io.Reader) *openai.Error {
	for {
		if len(c.text) == cap(c.text) {
			if err := c.grow(); err != nil {
				return err
			}
		}
		n, err := from.Read(c.text[len(c.text):cap(c.text)])
		c.text = c.text[:len(c.text)+n]
		if int64(len(c.text)) > c.of.settings.MaxBody {
			return c.of.tooLarge()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return openai.Errorf(http.StatusBadRequest, openai.CodeInvalidBody, "the body did not arrive completely: %v", err)
		}
	}
}

// reserve counts more bytes of memory until done. It fails if all bodies exceed the budget, or if the bodies of one
// client exceed half of it. Clients without a name share the whole budget.
func (c *content) reserve(more int64) *openai.Error {
	c.size += more
	all, own := c.of.buffered.Add(more), c.from.Hold(more)
	share := c.of.settings.BodyBudget
	if c.from.Name() != "" {
		share /= 2
	}
	if all > c.of.settings.BodyBudget || own > share {
		return openai.Errorf(http.StatusServiceUnavailable, openai.CodeOverloaded,
			"the router's memory for request bodies is full: try again").After(time.Second)
	}
	return nil
}

// grow doubles the buffer.
func (c *content) grow() *openai.Error {
	size := max(firstRead, min(2*cap(c.text), int(c.of.settings.MaxBody)+1))
	if err := c.reserve(int64(size) - c.size); err != nil {
		return err
	}
	next := make([]byte, len(c.text), size)
	copy(next, c.text)
	c.text = next
	return nil
}
