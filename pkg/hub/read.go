// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/modelberth/modelberth/pkg/jsonstream"
)

// errNotJSON is returned if the server is not a hub, but a captive portal or a file server.
var errNotJSON = errors.New("the response is not the JSON of a Hugging Face-compatible hub")

// ReadJSON returns a whole file of at most the given size, which must be a JSON object. It also returns the file's
// commit, empty if the hub does not name it. Other content, such as a portal's page, is a MalformedError. A larger file
// is a TooLargeError.
func (c *Client) ReadJSON(ctx context.Context, f File, most int64) (content []byte, commit string, err error) {
	commit, err = c.Stream(ctx, f, most, func(r io.Reader) error {
		content, err = io.ReadAll(r)
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(bytes.TrimLeft(content, " \t\r\n"), []byte("{")) {
			return c.malformed(f, errNotJSON)
		}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	return content, commit, nil
}

// Stream passes a whole file of at most the given size to read. It returns the file's commit, empty if the hub does not
// name it. Stream as a whole has the deadline of a metadata call. An error of the transfer takes precedence over an
// error of read.
func (c *Client) Stream(ctx context.Context, f File, most int64, read func(io.Reader) error) (commit string, err error) {
	header, err := c.fetch(ctx, answer{f, c.resolveURL(f), most}, "file", read)
	if err != nil {
		return "", err
	}
	if commit = header.Get("X-Repo-Commit"); !IsCommit(commit) {
		return "", nil
	}
	return commit, nil
}

// StreamStart passes the first n bytes of a file to read, as Stream does. It also works if ranges are ignored.
func (c *Client) StreamStart(ctx context.Context, f File, n int64, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.answerTimeout, errNoAnswer)
	defer cancel()
	body, err := c.Open(ctx, f, Range{0, n})
	if err != nil {
		return err
	}
	seen := &sticky{Reader: body}
	err = read(seen)
	return errors.Join(cmp.Or(seen.err, err), body.Close())
}

// ReadStart returns the first n bytes of a file. Use it for small n.
func (c *Client) ReadStart(ctx context.Context, f File, n int64) (out []byte, err error) {
	err = c.StreamStart(ctx, f, n, func(r io.Reader) error {
		out = make([]byte, n)
		_, err := io.ReadFull(r, out)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// answer describes the expected answer of a call: its URL, and its maximum size in bytes.
type answer struct {
	file File
	url  string
	most int64
}

// getJSON streams an answer of the API, and returns its headers.
func (c *Client) getJSON(ctx context.Context, from answer, decode func(*jsonstream.Decoder) error) (http.Header, error) {
	return c.fetch(ctx, from, "answer", func(r io.Reader) error {
		d := jsonstream.New(r)
		err := decode(d)
		if err == nil {
			err = d.End()
		}
		if err != nil {
			return c.malformed(from.file, fmt.Errorf("%w: %w", errNotJSON, err))
		}
		return nil
	})
}

// fetch passes an answer to read, and returns its headers. If a redirect named the commit and the answer does not,
// fetch adds it to the headers.
func (c *Client) fetch(ctx context.Context, from answer, what string, read func(io.Reader) error) (http.Header, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.answerTimeout, errNoAnswer)
	defer cancel()
	req, err := c.newRequest(ctx, http.MethodGet, from.url)
	if err != nil {
		return nil, err
	}
	resp, err := c.data.Do(req)
	if err != nil {
		return nil, c.failed(ctx, from.file, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, c.classify(from.file, resp)
	}
	tooLarge := &TooLargeError{File: from.file, What: what, Limit: from.most}
	body := &sticky{Reader: &capped{Reader: resp.Body, left: from.most, over: tooLarge}}
	err = read(body)
	switch {
	case errors.Is(body.err, tooLarge):
		return nil, tooLarge
	case body.err != nil:
		return nil, c.broke(ctx, from.file, resp, body.err)
	case err != nil:
		return nil, err
	}
	if commit := metadataOf(resp).Commit; commit != "" {
		resp.Header.Set("X-Repo-Commit", commit)
	}
	return resp.Header, nil
}

// sticky records the error of its Reader, because a parser may hide it.
type sticky struct {
	io.Reader
	err error
}

func (s *sticky) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// capped fails with the error over if the Reader has more than left bytes.
type capped struct {
	io.Reader
	left int64
	over error
}

func (c *capped) Read(p []byte) (int, error) {
	if int64(len(p)) > c.left+1 {
		p = p[:c.left+1]
	}
	n, err := c.Reader.Read(p)
	if c.left -= int64(n); c.left < 0 {
		return 0, c.over
	}
	return n, err
}
