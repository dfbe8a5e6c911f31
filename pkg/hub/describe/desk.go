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
	// deskDeadline bounds one query, and deskPatience each of its requests.
	deskDeadline = 10 * time.Second
	deskPatience = 5 * time.Second
	// deskLife is how long an answer is cached, deskRefusal how long a refusal, and deskPause how long an
	// unreachable hub gets no queries at all.
	deskLife    = time.Hour
	deskRefusal = time.Minute
	deskPause   = 30 * time.Second
	// deskSize is how many answers are cached, and deskWidth how many queries run at once: each may hold a few MiB
	// of the hub's answer.
	deskSize  = 256
	deskWidth = 8
)

// Desk queries one hub for many callers and caches the answers: each only for callers with the same token.
type Desk struct {
	endpoint string
	http     *http.Client
	clock    clock.PassiveClock
	// asking bounds the running queries, and headers those that read an index or header of weights.
	asking, headers *semaphore.Weighted

	mu      sync.Mutex
	answers map[question]answer
	// away says why nobody gets an answer from the hub until awayUntil. It names no repository: whoever asked
	// may be another tenant.
	away      *hub.UnreachableError
	awayUntil time.Time
}

// question is about a repository as a whole or, with a file, about the file's commit.
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

// NewDesk returns a desk for the hub at an endpoint.
func NewDesk(endpoint string, client *http.Client, now clock.PassiveClock) *Desk {
	return &Desk{
		endpoint: endpoint, http: client, clock: now, answers: map[question]answer{},
		asking: semaphore.NewWeighted(deskWidth), headers: semaphore.NewWeighted(maxHeaders),
	}
}

// Describe is Inspect within a deadline. Its errors are *Errors. An empty token asks anonymously.
func (d *Desk) Describe(ctx context.Context, repo, revision, token string) (Description, error) {
	found, err := d.ask(ctx, question{repo: repo, revision: revision}, token, func(ctx context.Context, c *hub.Client) (answer, error) {
		described, err := inspector{c, d.headers}.describe(ctx, repo, revision)
		return answer{description: described}, err
	})
	return found.description, err
}

// Commit returns the present commit of a branch or tag, and an *Error if the token's owner may not read the file
// there. It is empty if a mirror does not name it.
func (d *Desk) Commit(ctx context.Context, f hub.File, token string) (string, error) {
	asked := question{repo: f.Repo, revision: f.Revision, file: f.Path}
	found, err := d.ask(ctx, asked, token, func(ctx context.Context, c *hub.Client) (answer, error) {
		seen, err := c.Stat(ctx, f)
		if err != nil {
			return answer{}, &Error{Endpoint: c.Endpoint(), Repo: f.Repo, Revision: f.Revision, Err: err}
		}
		if !hub.IsCommit(seen.Commit) {
			return answer{}, nil
		}
		return answer{commit: seen.Commit}, nil
	})
	return found.commit, err
}

// ask answers from the cache, or queries the hub within a deadline.
func (d *Desk) ask(
	ctx context.Context, asked question, token string, ask func(context.Context, *hub.Client) (answer, error),
) (answer, error) {
	asked.token = sha256.Sum256([]byte(token))
	if known, ok := d.known(asked); ok {
		return known, known.err
	}
	client, err := hub.New(hub.Options{Endpoint: d.endpoint, Token: token, HTTP: d.http, AnswerTimeout: deskPatience})
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, deskDeadline, errTooLong)
	defer cancel()
	if err := d.asking.Acquire(ctx, 1); err != nil {
		return answer{}, &Error{Endpoint: d.endpoint, Repo: asked.repo, Revision: asked.revision, Err: context.Cause(ctx)}
	}
	defer d.asking.Release(1)
	found, err := ask(ctx, client)
	d.keep(asked, found, err, client.Outage(err))
	return found, err
}

// errTooLong is the cause of a query that exceeds its deadline.
var errTooLong = fmt.Errorf("the hub did not answer all requests within %s: try again", deskDeadline)

// known is the cached answer.
func (d *Desk) known(asked question) (answer, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	if known, ok := d.answers[asked]; ok && now.Before(known.until) {
		return known, true
	}
	if d.away != nil && now.Before(d.awayUntil) {
		return answer{err: &Error{Endpoint: d.endpoint, Repo: asked.repo, Revision: asked.revision, Err: d.away}}, true
	}
	return answer{}, false
}

// keep caches an answer. An outage applies to all callers; any other error only to this one.
func (d *Desk) keep(asked question, found answer, err error, outage *hub.UnreachableError) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	if outage != nil {
		d.away, d.awayUntil = outage, now.Add(deskPause)
		return
	}
	for key, known := range d.answers {
		if !now.Before(known.until) {
			delete(d.answers, key)
		}
	}
	if len(d.answers) >= deskSize || errors.Is(err, context.Canceled) {
		return // it is asked again
	}
	life := deskLife
	if err != nil {
		life = deskRefusal
	}
	found.err, found.until = err, now.Add(life)
	d.answers[asked] = found
}
