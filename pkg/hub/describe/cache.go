// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/hub"
)

const (
	// queryDeadline bounds one query, and requestTimeout each of its requests.
	queryDeadline  = 10 * time.Second
	requestTimeout = 5 * time.Second
	// answerLife is the time that an answer stays in the cache, and refusalLife that of a refusal. outagePause is the
	// pause without queries after a hub was unreachable.
	answerLife  = time.Hour
	refusalLife = time.Minute
	outagePause = 30 * time.Second
	// maxAnswers is the maximum number of cached answers. maxQueries is the maximum number of queries at once: each may
	// hold a few MiB of the hub's answer.
	maxAnswers = 256
	maxQueries = 8
)

// Cache queries one hub for many callers. It caches each answer, but only for callers with the same token.
type Cache struct {
	endpoint string
	http     *http.Client
	clock    clock.PassiveClock
	// asking limits the running queries. headers limits the queries that read an index or header of weights.
	asking, headers *semaphore.Weighted

	mu      sync.Mutex
	answers map[question]answer
	// away is the error for all callers until awayUntil, after the hub was unreachable. It names no repository, because
	// another tenant may have asked.
	away      *hub.UnreachableError
	awayUntil time.Time
}

// question is about a repository, or with a file about the file's commit.
type question struct {
	repo, revision, file string
	token                [sha256.Size]byte
}

type answer struct {
	description Description
	commit      string
	err         error
	until       time.Time
}

// NewCache returns a cache for the hub at an endpoint.
func NewCache(endpoint string, client *http.Client, now clock.PassiveClock) *Cache {
	return &Cache{
		endpoint: endpoint, http: client, clock: now, answers: map[question]answer{},
		asking: semaphore.NewWeighted(maxQueries), headers: semaphore.NewWeighted(maxHeaders),
	}
}

// Describe works like Inspect, with a cache and a deadline. Its errors are *Errors. An empty token means anonymous.
func (c *Cache) Describe(ctx context.Context, repo, revision, token string) (Description, error) {
	asked := question{repo: repo, revision: revision}
	found, err := c.ask(ctx, asked, token, func(ctx context.Context, client *hub.Client) (answer, error) {
		described, err := inspector{client, c.headers}.describe(ctx, repo, revision)
		return answer{description: described}, err
	})
	return found.description, err
}

// Commit returns the present commit of a branch or tag, empty if a mirror does not name it. If the token's owner may
// not read the file there, it returns an *Error.
func (c *Cache) Commit(ctx context.Context, f hub.File, token string) (string, error) {
	asked := question{repo: f.Repo, revision: f.Revision, file: f.Path}
	found, err := c.ask(ctx, asked, token, func(ctx context.Context, client *hub.Client) (answer, error) {
		seen, err := client.Stat(ctx, f)
		if err != nil {
			return answer{}, &Error{Endpoint: client.Endpoint(), Repo: f.Repo, Revision: f.Revision, Err: err}
		}
		if !hub.IsCommit(seen.Commit) {
			return answer{}, nil
		}
		return answer{commit: seen.Commit}, nil
	})
	return found.commit, err
}

// ask answers from the cache, or queries the hub within a deadline.
func (c *Cache) ask(
	ctx context.Context, asked question, token string, ask func(context.Context, *hub.Client) (answer, error),
) (answer, error) {
	asked.token = sha256.Sum256([]byte(token))
	if known, ok := c.known(asked); ok {
		return known, known.err
	}
	client, err := hub.New(hub.Options{Endpoint: c.endpoint, Token: token, HTTP: c.http, AnswerTimeout: requestTimeout})
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, queryDeadline, errTooLong)
	defer cancel()
	if err := c.asking.Acquire(ctx, 1); err != nil {
		return answer{}, &Error{Endpoint: c.endpoint, Repo: asked.repo, Revision: asked.revision, Err: context.Cause(ctx)}
	}
	defer c.asking.Release(1)
	found, err := ask(ctx, client)
	c.keep(asked, found, err, client.Outage(err))
	return found, err
}

// errTooLong is the cause of a query that exceeds its deadline.
var errTooLong = fmt.Errorf("the hub did not answer all requests within %s: try again", queryDeadline)

// known returns the cached answer.
func (c *Cache) known(asked question) (answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if known, ok := c.answers[asked]; ok && now.Before(known.until) {
		return known, true
	}
	if c.away != nil && now.Before(c.awayUntil) {
		return answer{err: &Error{Endpoint: c.endpoint, Repo: asked.repo, Revision: asked.revision, Err: c.away}}, true
	}
	return answer{}, false
}

// keep caches an answer. An outage applies to all callers; any other error only to this one.
func (c *Cache) keep(asked question, found answer, err error, outage *hub.UnreachableError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if outage != nil {
		c.away, c.awayUntil = outage, now.Add(outagePause)
		return
	}
	for key, known := range c.answers {
		if !now.Before(known.until) {
			delete(c.answers, key)
		}
	}
	if len(c.answers) >= maxAnswers || errors.Is(err, context.Canceled) {
		return // the next caller queries the hub again
	}
	life := answerLife
	if err != nil {
		life = refusalLife
	}
	found.err, found.until = err, now.Add(life)
	c.answers[asked] = found
}
