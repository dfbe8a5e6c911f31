// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/redact"
)

// DefaultEndpoint is the endpoint if HF_ENDPOINT is not set.
const DefaultEndpoint = "https://huggingface.co"

// Defaults of Options.
const (
	DefaultAnswerTimeout = 30 * time.Second
	DefaultIdleTimeout   = 20 * time.Second
)

// File identifies a file of a repository, or with an empty Path the repository itself.
type File struct {
	Repo     string
	Revision string
	Path     string
}

func (f File) String() string {
	if f.Path == "" {
		return f.Repo + "@" + f.Revision
	}
	return f.Repo + "@" + f.Revision + "/" + f.Path
}

// Options configure a Client. Only HTTP is required.
type Options struct {
	// Endpoint in the form of HF_ENDPOINT: scheme, host and an optional path prefix. Empty means DefaultEndpoint.
	Endpoint string
	// Token authenticates to the endpoint. The client sends it to no other host. Empty means anonymous.
	Token string
	// HTTP sends the requests. The Client replaces its CheckRedirect. Its Timeout must be 0, because a timeout would
	// truncate long bodies.
	HTTP *http.Client
	// Clock measures silence and Retry-After dates; nil means the real clock.
	Clock clock.WithDelayedExecution
	// AnswerTimeout bounds a metadata call, and the time to the first byte of a file.
	AnswerTimeout time.Duration
	// IdleTimeout bounds the silence within a file's body. The time for the whole body has no bound.
	IdleTimeout time.Duration
	// UserAgent identifies the caller to the hub's operator.
	UserAgent string
}

// Client queries one hub. It is safe for concurrent use.
type Client struct {
	endpoint      *url.URL
	token         string
	data          *http.Client
	meta          *http.Client
	clock         clock.WithDelayedExecution
	answerTimeout time.Duration
	idleTimeout   time.Duration
	userAgent     string
}

// New checks the options and returns a Client.
func New(o Options) (*Client, error) {
	if o.HTTP == nil {
		return nil, errors.New("hub: Options.HTTP is nil: pass a client, such as one from NewHTTPClient")
	}
	if o.HTTP.Timeout != 0 {
		return nil, errors.New("hub: Options.HTTP has a Timeout, which would truncate long files: leave it 0")
	}
	endpoint, err := parseEndpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	c := &Client{
		endpoint: endpoint, token: o.Token, clock: o.Clock, userAgent: o.UserAgent,
		answerTimeout: o.AnswerTimeout, idleTimeout: o.IdleTimeout,
	}
	if c.clock == nil {
		c.clock = clock.RealClock{}
	}
	if c.answerTimeout <= 0 {
		c.answerTimeout = DefaultAnswerTimeout
	}
	if c.idleTimeout <= 0 {
		c.idleTimeout = DefaultIdleTimeout
	}
	c.data, c.meta = c.followEverywhere(o.HTTP), c.followAtHome(o.HTTP)
	return c, nil
}

// Endpoint returns the URL of the client's hub, without a trailing slash.
func (c *Client) Endpoint() string { return c.endpoint.String() }

func parseEndpoint(s string) (*url.URL, error) {
	if s == "" {
		s = DefaultEndpoint
	}
	u, err := url.Parse(strings.TrimRight(s, "/"))
	switch {
	case err != nil:
		// The text of a parse error quotes the input, and that may contain a password.
		return nil, errors.New("hub: endpoint is not a URL: give https://HOST[/PREFIX]")
	case u.User != nil:
		return nil, fmt.Errorf("hub: endpoint %q carries a user name: pass the secret as the token", u.Redacted())
	case (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return nil, fmt.Errorf("hub: endpoint %q is not a web address: give https://HOST[/PREFIX]", u.Redacted())
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("hub: endpoint %q carries a query or fragment: give https://HOST[/PREFIX]", u.Redacted())
	}
	return u, nil
}

// url appends path elements to the endpoint. It escapes slashes in them, so a revision such as refs/pr/1 stays one
// element.
func (c *Client) url(elements ...string) string {
	var b strings.Builder
	b.WriteString(c.endpoint.String())
	for _, e := range elements {
		b.WriteString("/")
		b.WriteString(url.PathEscape(e))
	}
	return b.String()
}

func (c *Client) modelURL(f File, route string) string {
	return c.url(append(append([]string{"api", "models"}, strings.Split(f.Repo, "/")...), route, f.Revision)...)
}

func (c *Client) resolveURL(f File) string {
	elements := append(strings.Split(f.Repo, "/"), "resolve", f.Revision)
	return c.url(append(elements, strings.Split(f.Path, "/")...)...)
}

func (c *Client) newRequest(ctx context.Context, method, url string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("hub: building a request: %w", redact.Error(withoutQuery(err)))
	}
	// Sizes and ranges must refer to the file itself, not to a compressed form.
	req.Header.Set("Accept-Encoding", "identity")
	if c.userAgent != "" {
		req.Header.Set("User-Agent", c.userAgent)
	}
	// The next page may be on another host, and the token must not go there.
	if c.token != "" && c.isHome(req.URL) {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return req, nil
}
