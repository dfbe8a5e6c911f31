// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/pkg/jsonstream"
)

// Bounds of a hub's answers in memory.
const (
	// maxInfo bounds the API's description of one repository, with its list of files.
	maxInfo = 4 << 20
	// maxPage bounds one page of a listing. maxTree bounds all pages together: about 100,000 files.
	maxPage  = 8 << 20
	maxTree  = 32 << 20
	maxPages = 100
)

// Metadata is the hub's description of one file.
type Metadata struct {
	// Commit is the current commit of the revision.
	Commit string
	// Size in bytes, -1 if the hub does not state it.
	Size int64
	// SHA256 is set for files in LFS. It is zero for small files in git.
	SHA256 Digest
}

// Entry is one file of a repository's tree.
type Entry struct {
	Path string
	Size int64
	// Digest is the LFS oid (SHA256) if the file has one, else git's object name (GitBlob).
	Digest Digest
}

// Resolve returns the commit of a branch, tag or commit.
func (c *Client) Resolve(ctx context.Context, repo, revision string) (string, error) {
	f := File{Repo: repo, Revision: revision}
	info, err := c.info(ctx, f)
	if err != nil {
		return "", err
	}
	if !IsCommit(info.sha) {
		return "", c.malformed(f, fmt.Errorf("the revision has sha %q, which is not a commit", clean(info.sha)))
	}
	return info.sha, nil
}

// Tree lists all files of a repository at a revision.
func (c *Client) Tree(ctx context.Context, repo, revision string) ([]Entry, error) {
	var entries []Entry
	err := c.EachFile(ctx, repo, revision, func(e Entry) { entries = append(entries, e) })
	return entries, err
}

// EachFile calls see with each file of a repository at a revision. It keeps no list, to save memory.
func (c *Client) EachFile(ctx context.Context, repo, revision string, see func(Entry)) error {
	f := File{Repo: repo, Revision: revision}
	left := int64(maxTree)
	next := c.modelURL(f, "tree") + "?recursive=true"
	for range maxPages {
		header, err := c.getJSON(ctx, answer{f, next, min(left, maxPage)}, func(d *jsonstream.Decoder) error {
			defer func() { left -= d.Offset() }()
			return d.Array(func() error {
				var e treeEntry
				if err := d.Value(&e); err != nil {
					return err
				}
				if e.Type == "file" {
					see(e.entry())
				}
				return nil
			})
		})
		if large, ok := errors.AsType[*TooLargeError](err); ok && left < maxPage {
			large.Limit = maxTree
		}
		if err != nil {
			return err
		}
		if next = c.nextPage(header, next); next == "" {
			return nil
		}
	}
	return c.malformed(f, fmt.Errorf("the list of its files has more than %d pages: choose a repository with fewer files", maxPages))
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
	// git-lfs writes oids as sha256:HEX. The hub's API omits the prefix.
	if d, err := ParseSHA256(strings.TrimPrefix(e.LFS.OID, "sha256:")); err == nil {
		out.Digest = d
	}
	return out
}

// Stat returns the hub's description of one file. It does not follow redirects to a CDN.
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

// metadataOf collects headers from resp and the redirects before it. The hub sends them with the content's address,
// perhaps in a redirect.
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

// nextPage returns the next page's URL from the Link header of a paginated answer; "" after the last page.
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
