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
	// deskDeadline bounds what one question takes, and deskPatience one of the answers it needs.
	deskDeadline = 10 * time.Second
	deskPatience = 5 * time.Second
	// deskLife is how long an answer is given again, deskRefusal how long a refusal, and deskPause how long a
	// hub that does not answer is left alone, whoever asks.
	deskLife    = time.Hour
	deskRefusal = time.Minute
	deskPause   = 30 * time.Second
	// deskSize is how many answers are kept, and deskWidth how many questions are under way at once: each
	// may hold a few MiB of what the hub answers.
	deskSize  = 256
	deskWidth = 8
)

// Desk asks one hub on behalf of many, and remembers the answers: each for those only who ask with the same
// token.
type Desk struct {
	endpoint string
	http     *http.Client
	clock    clock.PassiveClock
	// asking bounds the questions under way, and headers those that read an index or header of weights.
	asking, headers *semaphore.Weighted

	mu      sync.Mutex
	answers map[question]answer
	// away says why nobody gets an answer from the hub until awayUntil. It names no repository: whoever asked
	// may be another tenant.
	away      *hub.UnreachableError
	awayUntil time.Time
}

// question is about a repository as a whole or, with a file, about the commit that the file is at.
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

// Commit returns the commit that a branch or tag names right now, and an *Error where whoever has the token may
// not read the file there. It is empty where a mirror does not say.
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

// ask answers from what is known, or else has the hub asked within a deadline.
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

// errTooLong is the cause of a question that ran into its deadline.
var errTooLong = fmt.Errorf("the hub has not answered all of it within %s: try again", deskDeadline)

// known is what the desk says without asking.
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

// keep remembers an answer. An outage is everybody's; any other error is that of who asked.
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
