// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	errRefused = errors.New("connection refused")
	errLookup  = errors.New("no such host")
)

// said is the result of a query: an answer, or an error.
type said struct {
	at     time.Duration
	answer Identity
	err    error
}

func silence(from, to time.Duration, err error) []said {
	var out []said
	for at := from; at <= to; at += askEvery {
		out = append(out, said{at: at, err: err})
	}
	return out
}

func answers(at time.Duration, id string, group int64) said {
	return said{at: at, answer: Identity{ID: id, Group: group}}
}

// tell returns the first loss in a story, and the time of its detection.
func tell(story []said) (*LossError, time.Duration) {
	start, self := time.Unix(0, 0), Identity{ID: "me", Group: 3}
	var m member
	for _, s := range story {
		var loss *LossError
		if s.err != nil {
			m, loss = m.unheard(s.err, start.Add(s.at))
		} else {
			m, loss = m.hears(self, s.answer, start.Add(s.at))
		}
		if loss != nil {
			return loss, s.at
		}
	}
	return nil, 0
}

// value keeps cmp from comparing losses as errors, because an error equals only itself.
func value(l *LossError) LossError {
	if l == nil {
		return LossError{}
	}
	return *l
}

func TestLoss(t *testing.T) {
	const s = time.Second
	for _, tc := range []struct {
		reason string
		story  [][]said
		want   *LossError
		at     time.Duration
	}{
		{"a member that answers", [][]said{{answers(0, "a", 3), answers(s, "a", 3)}}, nil, 0},
		{"a start that takes long is no loss", [][]said{silence(0, 600*s, errRefused)}, nil, 0},
		{"a name that does not resolve yet is no loss", [][]said{silence(0, 60*s, errLookup), {answers(61*s, "a", 3)}}, nil, 0},
		{
			"silence",
			[][]said{{answers(0, "a", 3)}, silence(askEvery, 60*s, errRefused)},
			&LossError{Was: "a", Silent: 6 * askEvery, Last: errRefused}, 6 * askEvery,
		},
		{
			"flapping, always shorter than it takes",
			[][]said{{answers(0, "a", 3)}, silence(s, 3*s, errRefused), {answers(4*s, "a", 3)}, silence(5*s, 7*s, errRefused), {answers(8*s, "a", 3)}},
			nil, 0,
		},
		{"we were halted: late questions prove nothing", [][]said{{answers(0, "a", 3)}, {{at: 60 * s, err: errRefused}, {at: 61 * s, err: errRefused}, answers(62*s, "a", 3)}}, nil, 0},
		{
			"we were halted, and it is gone all the same",
			[][]said{{answers(0, "a", 3)}, {{at: 60 * s, err: errRefused}, {at: 61 * s, err: errRefused}, {at: 62 * s, err: errRefused}}},
			&LossError{Was: "a", Silent: 62 * s, Last: errRefused}, 62 * s,
		},
		{"another incarnation", [][]said{{answers(0, "a", 3), answers(s, "b", 3)}}, &LossError{Was: "a", Is: "b"}, s},
		{"another incarnation after a short silence", [][]said{{answers(0, "a", 3)}, silence(s, 2*s, errRefused), {answers(3*s, "b", 3)}}, &LossError{Was: "a", Is: "b"}, 3 * s},
		{"another before the first was met is no loss", [][]said{silence(0, 9*s, errRefused), {answers(10*s, "b", 3), answers(11*s, "b", 3)}}, nil, 0},
		{"one of the attempt before does not count", [][]said{{answers(0, "old", 2), answers(s, "old", 2), answers(2*s, "a", 3)}}, nil, 0},
		{"nor does one of the attempt after", [][]said{{answers(0, "new", 4), answers(90*s, "newer", 5)}}, nil, 0},
		{"our own name", [][]said{{answers(0, "me", 3), answers(90*s, "me", 3)}, silence(91*s, 120*s, errRefused)}, nil, 0},
		{"a member that is ending still answers", [][]said{{answers(0, "a", 3), {at: s, answer: Identity{ID: "a", Group: 3, Draining: true}}}}, nil, 0},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			var story []said
			for _, part := range tc.story {
				story = append(story, part...)
			}
			got, at := tell(story)
			if diff := cmp.Diff(value(tc.want), value(got), cmpopts.EquateErrors()); diff != "" || at != tc.at {
				t.Errorf("loss after %s, want after %s (-want +got):\n%s", at, tc.at, diff)
			}
		})
	}
	t.Run("one met that now belongs to another attempt is gone", func(t *testing.T) {
		story := []said{answers(0, "a", 3)}
		for at := askEvery; at < 10*s; at += askEvery {
			story = append(story, answers(at, "b", 4))
		}
		if got, at := tell(story); got == nil || got.IsReplacement() || at > 5*s {
			t.Errorf("loss %v after %s, want silence within 5s", got, at)
		}
	})
}

// Invariants: only a known member counts as lost. It is never lost if it answered under its ID within the last four
// seconds. With steady queries, a loss is always detected within five seconds.
func TestLossProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 20_000 {
		var story []said
		var met string
		var last, wantBy time.Duration
		for at := time.Duration(0); at < 30*time.Second; at += askEvery {
			one := answers(at, "a", 3)
			switch p := rnd.IntN(100); {
			case p < 2:
				one = answers(at, "b", 3)
			case p < 10:
				one = answers(at, "z", 2+2*int64(p%2))
			case p < 10+round%90:
				one = said{at: at, err: errRefused}
			}
			story = append(story, one)
			heard := one.err == nil && one.answer.Group == 3
			switch {
			case heard && (met == "" || met == one.answer.ID):
				met, last = one.answer.ID, at
				continue
			case heard || met != "" && at-last >= lostAfter:
				wantBy = at
			}
			if wantBy != 0 {
				break
			}
		}
		got, at := tell(story)
		if (got != nil) != (wantBy != 0) || at != wantBy || at-last > 5*time.Second {
			t.Fatalf("loss %v after %s, last heard at %s, want one after %s:\n%v", got, at, last, wantBy, story)
		}
	}
}
