// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/modelberth/modelberth/pkg/comparison"
	"github.com/modelberth/modelberth/pkg/router/openai"
	"github.com/modelberth/modelberth/pkg/router/resume"
)

// Outcomes, in metrics, of streams whose replica died.
const (
	outcomeContinued = "continued"
	outcomeLost      = "lost"
)

// planAgain prepares the request so that another replica can continue its answer, if the operator enabled that.
func (x *exchange) planAgain() *openai.Error {
	if !x.router.settings.Resumes || !x.fields.Stream || x.route.resumes == 0 || x.pool != nil {
		return nil
	}
	if err := x.content.reserve(int64(len(x.text))); err != nil {
		return err
	}
	x.plan = resume.New(x.route.resumes, x.text)
	if x.plan.Problem() != "" {
		return nil
	}
	text, err := x.plan.Body()
	if err != nil {
		return openai.Errorf(http.StatusBadRequest, openai.CodeInvalidBody, "the body cannot be read: %v", err)
	}
	x.text = text
	return nil
}

// continuing returns the body of an answer. If its replica dies, another replica continues it.
func (x *exchange) continuing(answer *http.Response) io.ReadCloser {
	if x.plan == nil || answer.StatusCode != http.StatusOK {
		return answer.Body
	}
	return resume.NewStream(x.plan, x.router.resumable, answer.Body, x.again, x.lost)
}

// again requests the rest of an answer from a replica other than the one that died.
func (x *exchange) again(body []byte) (io.ReadCloser, error) {
	ctx := x.outgoing.Context()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := x.content.reserve(int64(len(body))); err != nil {
		return nil, err
	}
	x.dead = x.hold.Replica
	x.tally(x.dead, comparison.Counts{Failed: 1})
	x.hold.Release()
	if now := x.router.directory.Models().Now(x.owner); now != nil {
		x.owner = now
	}
	x.work.Canary = x.owner.Canary.Staying(x.work.Canary.Has(x.dead))
	x.text, x.isFresh = body, true // if this engine breaks too, the request is not sent again
	answer, err := x.RoundTrip(x.outgoing)
	if errors.Is(err, errNoReplica) {
		return nil, err
	}
	if err != nil {
		return nil, errors.New("the other replica could not be reached")
	}
	if answer.StatusCode == http.StatusOK && isEventStream(answer) {
		return answer.Body, nil
	}
	return nil, errors.Join(errors.New("the other replica "+statusOf(answer)), answer.Body.Close())
}

// lost counts a stream whose replica died. A nil problem means that another replica continues it. Otherwise, lost
// returns the last event for the client.
func (x *exchange) lost(problem *resume.LostError) []byte {
	if problem == nil {
		x.router.metrics.resumes.WithLabelValues(x.owner.ID(), outcomeContinued).Inc()
		x.router.log.Info("another replica continues an answer", "model", x.owner.ID(), "lost", x.dead)
		return nil
	}
	if errors.Is(x.outgoing.Context().Err(), context.Canceled) {
		return nil // the client has left, so no replica was lost
	}
	x.router.metrics.resumes.WithLabelValues(x.owner.ID(), outcomeLost).Inc()
	x.failed = openai.Errorf(http.StatusBadGateway, openai.CodeReplicaLost, "%s", problem.Error())
	if errors.Is(x.outgoing.Context().Err(), context.DeadlineExceeded) {
		x.failed = openai.Errorf(http.StatusGatewayTimeout, openai.CodeDeadline,
			"model %q did not complete the answer within %s", x.fields.Model, x.router.settings.Deadline)
	}
	var out strings.Builder
	openai.WriteEvent(&out, x.failed)
	return []byte(out.String())
}
