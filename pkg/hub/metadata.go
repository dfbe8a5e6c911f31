// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Bounds on what a hub may make us hold in memory.
const (
	maxAnswer = 32 << 20
	maxPages  = 100
)

// errNoAnswer is the cause of a call that ran into its own deadline.
var errNoAnswer = errors.New("no answer")

// errNotJSON says that whoever answered does not speak the hub's API: a captive portal, a file server.
var errNotJSON = errors.New("answer is not the JSON of a Hugging Face-compatible hub")

// Metadata is what the hub says of one file.
type Metadata struct {
	// Commit is the commit that the revision names right now.
	Commit string
	// Size in bytes, -1 where the hub does not say.
	Size int64
	// SHA256 is set for files kept in LFS, zero for the small ones kept in git.
	SHA256 Digest
}

// Entry is one file of a repository's tree.
type Entry struct {
	Path string
	Size int64
	// Digest is the LFS oid (SHA256) where the file has one, else git's (GitBlob).
	Digest Digest
}

// Resolve returns the commit that a branch, tag or commit names.
func (c *Client) Resolve(ctx context.Context, repo, revision string) (string, error) {
	f := File{Repo: repo, Revision: revision}
	var info struct {
		SHA string `json:"sha"`
	}
	if _, err := c.getJSON(ctx, f, c.modelURL(f, "revision"), &info); err != nil {
		return "", err
	}
	if !IsCommit(info.SHA) {
		return "", c.notAHub(f, fmt.Errorf("revision is answered with sha %q, which is not a commit", clean(info.SHA)))
	}
	return info.SHA, nil
}

// Tree lists all files of a repository at a revision.
func (c *Client) Tree(ctx context.Context, repo, revision string) ([]Entry, error) {
	f := File{Repo: repo, Revision: revision}
	var entries []Entry
	next := c.modelURL(f, "tree") + "?recursive=true"
	for range maxPages {
		var page []treeEntry
		header, err := c.getJSON(ctx, f, next, &page)
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			if e.Type == "file" {
				entries = append(entries, e.entry())
			}
		}
		if next = c.nextPage(header, next); next == "" {
			return entries, nil
		}
	}
	return nil, c.notAHub(f, fmt.Errorf("tree has more than %d pages", maxPages))
}

type treeEntry struct {
	Type string `json:"type"`
	Path string `json:"path"`
	Size int64  `json:"size"`
	OID  string `json:"oid"`
	LFS  *struct {
		OID  string `json:"oid"`
		Size int64  `json:"size"`
	} `json:"lfs"`
}

func (e treeEntry) entry() Entry {
	if e.LFS == nil {
		out := Entry{Path: e.Path, Size: e.Size}
		if IsCommit(e.OID) {
			out.Digest = Digest{Algorithm: GitBlob, Hex: e.OID}
		}
		return out
	}
	out := Entry{Path: e.Path, Size: e.LFS.Size}
	// git-lfs writes oids as sha256:HEX, the hub's API without the prefix.
	if d, err := ParseSHA256(strings.TrimPrefix(e.LFS.OID, "sha256:")); err == nil {
		out.Digest = d
	}
	return out
}

// Stat returns what the hub says of one file, without following it to a CDN.
func (c *Client) Stat(ctx context.Context, f File) (Metadata, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.answerTimeout, errNoAnswer)
	defer cancel()
	req, err := c.newRequest(ctx, http.MethodHead, c.resolveURL(f))
	if err != nil {
		return Metadata{}, err
	}
	resp, err := c.meta.Do(req)
	if err != nil {
		return Metadata{}, c.failed(ctx, f, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return Metadata{}, c.classify(f, resp)
	}
	return metadataOf(resp), nil
}

// metadataOf collects headers along the redirects that led to resp: the hub
// puts them on the answer that points to the content, which need not be the last.
func metadataOf(resp *http.Response) Metadata {
	m := Metadata{Size: -1}
	if resp.StatusCode == http.StatusOK {
		m.Size = resp.ContentLength
	}
	for ; resp != nil; resp = resp.Request.Response {
		if commit := resp.Header.Get("X-Repo-Commit"); IsCommit(commit) {
			m.Commit = commit
		}
		if size, err := strconv.ParseInt(resp.Header.Get("X-Linked-Size"), 10, 64); err == nil && size >= 0 {
			m.Size = size
		}
		etag := strings.Trim(strings.TrimPrefix(resp.Header.Get("X-Linked-Etag"), "W/"), `"`)
		if d, err := ParseSHA256(etag); err == nil {
			m.SHA256 = d
		}
	}
	return m
}

func (c *Client) getJSON(ctx context.Context, f File, url string, into any) (http.Header, error) {
	body, header, err := c.getWhole(ctx, f, url, maxAnswer)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return nil, c.notAHub(f, fmt.Errorf("%w: %w", errNotJSON, err))
	}
	return header, nil
}

// getWhole returns a body that is small enough to be held in memory, and the headers of the answer, with
// the commit of whichever answer on the way named one.
func (c *Client) getWhole(ctx context.Context, f File, url string, most int64) ([]byte, http.Header, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.answerTimeout, errNoAnswer)
	defer cancel()
	req, err := c.newRequest(ctx, http.MethodGet, url)
	if err != nil {
		return nil, nil, err
	}
	resp, err := c.data.Do(req)
	if err != nil {
		return nil, nil, c.failed(ctx, f, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, c.classify(f, resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return nil, nil, c.failed(ctx, f, err)
	}
	if int64(len(body)) > most {
		return nil, nil, c.notAHub(f, fmt.Errorf("answer is larger than %d bytes", most))
	}
	if commit := metadataOf(resp).Commit; commit != "" {
		resp.Header.Set("X-Repo-Commit", commit)
	}
	return body, resp.Header, nil
}

// nextPage reads the Link header of a paginated answer; "" ends the list.
func (c *Client) nextPage(header http.Header, current string) string {
	m := regexp.MustCompile(`<([^>]+)>\s*;\s*rel="?next"?`).FindStringSubmatch(header.Get("Link"))
	if m == nil {
		return ""
	}
	base, err := url.Parse(current)
	if err != nil {
		return ""
	}
	next, err := base.Parse(m[1])
	if err != nil {
		return ""
	}
	return next.String()
}

// failed tells a caller who gave up from a hub that did not answer.
func (c *Client) failed(ctx context.Context, f File, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil:
		cause = withoutQuery(err)
	case errors.Is(cause, errNoAnswer):
		cause = fmt.Errorf("%w within %s", errNoAnswer, c.answerTimeout)
	default:
		return fmt.Errorf("hub: %s: %w", f, cause)
	}
	return &UnreachableError{Endpoint: c.Endpoint(), File: f, Err: cause}
}

func (c *Client) notAHub(f File, err error) error {
	return &UnreachableError{Endpoint: c.Endpoint(), File: f, Err: err}
}
