// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"bytes"
	"context"
	"errors"
	"io"
)

// ReadJSON returns a whole file that holds a JSON object of at most so many bytes, and the commit that it
// is of, empty where the hub does not say. Anything else in its place, such as a portal's page, is an
// UnreachableError.
func (c *Client) ReadJSON(ctx context.Context, f File, most int64) (content []byte, commit string, err error) {
	content, header, err := c.getWhole(ctx, f, c.resolveURL(f), most)
	if err != nil {
		return nil, "", err
	}
	if !bytes.HasPrefix(bytes.TrimLeft(content, " \t\r\n"), []byte("{")) {
		return nil, "", c.notAHub(f, errNotJSON)
	}
	if commit = header.Get("X-Repo-Commit"); !IsCommit(commit) {
		commit = ""
	}
	return content, commit, nil
}

// ReadStart returns the first n bytes of a file. It has the deadline of a metadata call, and so is for
// what fits into memory; it works where ranges are ignored, too.
func (c *Client) ReadStart(ctx context.Context, f File, n int64) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.answerTimeout, errNoAnswer)
	defer cancel()
	body, err := c.Open(ctx, f, Range{0, n})
	if err != nil {
		return nil, err
	}
	out := make([]byte, n)
	_, err = io.ReadFull(body, out)
	if err := errors.Join(err, body.Close()); err != nil {
		return nil, err
	}
	return out, nil
}
