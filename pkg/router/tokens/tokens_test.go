// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/pkg/router/limit"
)

var start = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// token returns a token with a user, an audience and an expiry.
func token(user, audience string, expires time.Time) string {
	return signed(fmt.Sprintf(`{"sub":"system:serviceaccount:team:%s","aud":[%q],"exp":%d}`, user, audience, expires.Unix()))
}

// ofTeam is the prefix of the usernames in namespace team.
const ofTeam = "system:serviceaccount:team:"

// signature is valid base64.
const signature = "c2lnbmVk"

func signed(payload string) string {
	return encode(`{"alg":"RS256"}`) + "." + encode(payload) + "." + signature
}

func encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// api is an API server that accepts every token, unless it is down or has lost the user.
type api struct {
	down, lost bool
	// prefix is the prefix of all usernames; if it is empty, ofTeam is.
	prefix  string
	allowed map[string]bool
	asked   []string
}

func (a *api) User(_ context.Context, token string, audiences ...string) (*authenticationv1.UserInfo, error) {
	a.asked = append(a.asked, "who for "+strings.Join(audiences, ","))
	if a.down {
		return nil, errors.New("down")
	}
	if a.lost {
		return nil, nil //nolint:nilnil // as the port says
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		return nil, err
	}
	name := strings.TrimPrefix(strings.Split(string(text), `"`)[3], ofTeam)
	prefix := ofTeam
	if a.prefix != "" {
		prefix = a.prefix
	}
	return &authenticationv1.UserInfo{Username: prefix + name, UID: "uid-" + name, Groups: []string{"g"}}, nil
}

func (a *api) MayUse(_ context.Context, user *authenticationv1.UserInfo, what authorizationv1.ResourceAttributes) (bool, error) {
	a.asked = append(a.asked, fmt.Sprintf("may %s %s %s.%s in %s", strings.TrimPrefix(user.Username, ofTeam), what.Verb, what.Resource, what.Group, what.Namespace))
	if a.down {
		return false, errors.New("down")
	}
	return a.allowed[what.Namespace], nil
}

func (a *api) reviewers() Reviewers { return Reviewers{New: a, Renewals: a, Rights: a} }

func TestUser(t *testing.T) {
	later := start.Add(time.Hour)
	cases := []struct {
		reason, token string
		api           api
		want          string
		isAsked       bool
	}{
		{"a token for the router", token("sa", "router", later), api{}, "sa", true},
		{"a token for the API server", token("sa", "https://kubernetes.default.svc", later), api{}, "nobody", false},
		{"an expired token", token("sa", "router", start), api{}, "nobody", false},
		{"a key, which is no token", "sk-0123456789abcdef", api{}, "nobody", false},
		{"three parts that are no token", "a.b.c", api{}, "nobody", false},
		{"a token without an end", signed(`{"sub":"system:serviceaccount:team:sa","aud":"router"}`), api{}, "nobody", false},
		{"one audience, which needs no list", signed(`{"sub":"system:serviceaccount:team:sa","aud":"router","exp":4102444800}`), api{}, "sa", true},
		{"a token of a person", signed(`{"sub":"alice","aud":"router","exp":4102444800}`), api{}, "nobody", false},
		{"an account without a namespace", signed(`{"sub":"system:serviceaccount::sa","aud":"router","exp":4102444800}`), api{}, "nobody", false},
		{"an account without a name", signed(`{"sub":"system:serviceaccount:team:","aud":"router","exp":4102444800}`), api{}, "nobody", false},
		{"no algorithm", strings.Replace(token("sa", "router", later), encode(`{"alg":"RS256"}`), encode("{}"), 1), api{}, "nobody", false},
		{"a header that is no JSON", strings.Replace(token("sa", "router", later), encode(`{"alg":"RS256"}`), encode("x"), 1), api{}, "nobody", false},
		{"no signature", strings.TrimSuffix(token("sa", "router", later), signature), api{}, "nobody", false},
		{"a signature that is no base64url", token("sa", "router", later) + "+/+/", api{}, "nobody", false},
		{"a fourth part", token("sa", "router", later) + ".x", api{}, "nobody", false},
		{"an account of another issuer, which the API server takes for a user", token("sa", "router", later), api{prefix: "oidc:" + ofTeam}, "nobody", true},
		{"a token that the API server refuses", token("sa", "router", later), api{lost: true}, "nobody", true},
		{"no answer", token("sa", "router", later), api{down: true}, "down", true},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			tokens := New(Settings{Audience: "router"}, c.api.reviewers(), 1, clocktesting.NewFakePassiveClock(start))
			got := "nobody"
			user, err := tokens.User(t.Context(), c.token)
			switch {
			case err != nil:
				got = err.Error()
			case user != nil:
				got = strings.TrimPrefix(user.Client().Name(), ofTeam)
				if user.Client().Sees("a") || user.Client().CacheSalt() == "" {
					t.Error("a user reaches a namespace before its rights are known, or has no salt")
				}
			}
			if got != c.want || len(c.api.asked) > 0 != c.isAsked {
				t.Errorf("the user is %s after %q, want %s", got, c.api.asked, c.want)
			}
		})
	}
}

// TestAnswersHold: answers of the API server are reused for a while, and a right that it takes back ends soon.
func TestAnswersHold(t *testing.T) {
	server := &api{allowed: map[string]bool{"a": true}}
	clock := clocktesting.NewFakePassiveClock(start)
	tokens := New(Settings{Audience: "router"}, server.reviewers(), 1, clock)
	text := token("sa", "router", start.Add(time.Hour))
	visible := func() string {
		user, err := tokens.User(t.Context(), text)
		if err != nil || user == nil {
			return fmt.Sprintf("nobody %v", err)
		}
		client, err := tokens.Within(t.Context(), user, []string{"a", "b"})
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(client.Sees("a"), client.Sees("b"))
	}
	expect := func(reason string, after time.Duration, want string, questions int) {
		t.Helper()
		clock.SetTime(clock.Now().Add(after))
		server.asked = nil
		if got := visible(); got != want || len(server.asked) != questions {
			t.Errorf("%s: %s after %q, want %s after %d questions", reason, got, server.asked, want, questions)
		}
	}
	expect("at first", 0, "true false", 3)
	if diff := cmp.Diff([]string{"who for router", "may sa use workspaces.kaito.sh in a", "may sa use workspaces.kaito.sh in b"}, server.asked); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	expect("at once", time.Second, "true false", 0)
	server.allowed["b"] = true
	expect("a new right", deniedFor, "true true", 1)
	server.allowed["a"] = false
	expect("a right that was taken away", allowedFor, "false true", 2)
	server.down = true
	expect("no answer about a right", deniedFor, "down", 1)
	expect("no answer about the account", allowedFor, "nobody down", 1)
	server.down, server.lost = false, true
	expect("a deleted account", acceptedFor, "nobody <nil>", 1)
	expect("a deleted account, at once", time.Second, "nobody <nil>", 0)
	server.lost = false
	expect("a token that was refused by mistake", refusedFor, "false true", 3)
	clock.SetTime(start.Add(time.Hour - 10*time.Second))
	expect("shortly before the end of the token", 0, "false true", 3)
	expect("after its end", 10*time.Second, "nobody <nil>", 0)
}

// TestManyNamespaces: a request causes a bounded number of reviews, and the next one continues.
func TestManyNamespaces(t *testing.T) {
	names := func(from, to int) (out []string) {
		for i := from; i < to; i++ {
			out = append(out, fmt.Sprintf("n%03d", i))
		}
		return out
	}
	type step struct {
		after      time.Duration
		namespaces int
		// asked are the reviewed namespaces; "" is the whole cluster.
		asked []string
		sees  string
	}
	const unfinished = "the account's rights in more than 50 namespaces are not reviewed yet"
	all := []string{""}
	cases := []struct {
		reason  string
		allowed string // and nothing else
		steps   []step
	}{
		{"as many as a request may review", "n049", []step{{0, 50, names(0, 50), "n049"}, {time.Second, 50, nil, "n049"}}},
		{"one more", "n050", []step{
			{0, 51, slices.Concat(all, names(0, 50)), unfinished},
			{time.Second, 51, names(50, 51), "n050"},
			{time.Second, 51, nil, "n050"},
		}},
		{"a right in the whole cluster", "", []step{{0, 500, all, "all"}, {time.Second, 500, nil, "all"}, {allowedFor, 500, all, "all"}}},
		{"stale refusals are renewed as far as the bound allows, the oldest first", "n119", []step{
			{0, 120, slices.Concat(all, names(0, 50)), unfinished},
			{time.Second, 120, names(50, 100), unfinished},
			{time.Second, 120, names(100, 120), "n119"},
			{deniedFor, 120, names(0, 50), "n119"},
			{time.Second, 120, names(50, 100), "n119"},
			{allowedFor, 120, slices.Concat(names(119, 120), names(100, 119), names(0, 30)), "n119"},
		}},
		{"refusals become too old", "n000", []step{
			{0, 60, slices.Concat(all, names(0, 50)), unfinished},
			{0, 60, names(50, 60), "n000"},
			{staleFor, 60, slices.Concat(all, names(0, 50)), unfinished},
		}},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			server := &api{allowed: map[string]bool{c.allowed: true}}
			clock := clocktesting.NewFakePassiveClock(start)
			tokens := New(Settings{Audience: "router"}, server.reviewers(), 1, clock)
			user, err := tokens.User(t.Context(), token("sa", "router", start.Add(time.Hour)))
			if err != nil {
				t.Fatal(err)
			}
			for i, step := range c.steps {
				clock.SetTime(clock.Now().Add(step.after))
				server.asked = nil
				var asked []string
				var sees string
				client, err := tokens.Within(t.Context(), user, names(0, step.namespaces))
				for _, question := range server.asked {
					_, namespace, _ := strings.Cut(question, " in ")
					asked = append(asked, namespace)
				}
				switch {
				case err != nil:
					sees = err.Error()
				case !slices.ContainsFunc(names(0, step.namespaces), func(name string) bool { return !client.Sees(name) }):
					sees = "all"
				default:
					sees = strings.Join(slices.DeleteFunc(names(0, step.namespaces), func(name string) bool { return !client.Sees(name) }), " ")
				}
				if diff := cmp.Diff(step.asked, asked) + cmp.Diff(step.sees, sees); diff != "" {
					t.Errorf("step %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

// TestRenewedToken: all accounts of a namespace share its limits, and no two users have the same salt.
func TestRenewedToken(t *testing.T) {
	clock, server := clocktesting.NewFakePassiveClock(start), &api{}
	tokens := New(Settings{Audience: "router", Limits: limit.Limits{RequestsPerMinute: 1}}, server.reviewers(), 1, clock)
	user := func(name string, expires time.Duration) *limit.Client {
		found, err := tokens.User(t.Context(), token(name, "router", start.Add(expires)))
		if err != nil || found == nil {
			t.Fatalf("%v, %v", found, err)
		}
		return found.Client().Within([]string{"a"})
	}
	first, renewed, other := user("sa", time.Hour), user("sa", 2*time.Hour), user("sb", time.Hour)
	if _, excess := first.Admit(start, 1); excess != nil {
		t.Fatal(excess)
	}
	if _, excess := renewed.Admit(start, 1); excess == nil {
		t.Error("a new token resets the limit")
	}
	if _, excess := other.Admit(start, 1); excess == nil || other.Group() != "system:serviceaccounts:team" {
		t.Errorf("another account of the namespace has limits of its own, or those of %q", other.Group())
	}
	server.prefix = "system:serviceaccount:else:"
	elsewhere := user("sc", time.Hour)
	if _, excess := elsewhere.Admit(start, 1); excess != nil || elsewhere.Group() != "system:serviceaccounts:else" {
		t.Errorf("an account of another namespace shares the limit, as one of %q: %+v", elsewhere.Group(), excess)
	}
	if first.CacheSalt() != renewed.CacheSalt() || first.CacheSalt() == other.CacheSalt() {
		t.Error("the salt is not that of the user")
	}
}

// limited is an API server behind a rate limit that never refills.
type limited struct {
	api
	left int
}

func (l *limited) User(ctx context.Context, token string, audiences ...string) (*authenticationv1.UserInfo, error) {
	if l.left == 0 {
		return nil, errors.New("the wait would exceed the deadline")
	}
	l.left--
	return l.api.User(ctx, token, audiences...)
}

// TestFloodOfUnknownTokens: forged tokens exhaust the limit of reviews, but accounts accepted before can still be
// renewed.
func TestFloodOfUnknownTokens(t *testing.T) {
	outside, inside := &limited{left: 3}, &limited{left: 3}
	clock := clocktesting.NewFakePassiveClock(start)
	tokens := New(Settings{Audience: "router"}, Reviewers{New: outside, Renewals: inside, Rights: inside}, 1, clock)
	send := func(text string) string {
		user, err := tokens.User(t.Context(), text)
		switch {
		case err != nil:
			return "no answer"
		case user == nil:
			return "nobody"
		}
		return strings.TrimPrefix(user.Client().Name(), ofTeam)
	}
	later := start.Add(time.Hour)
	known, deleted, late := token("known", "router", later), token("deleted", "router", later), token("late", "router", later)
	if got := []string{send(known), send(deleted)}; got[0] != "known" || got[1] != "deleted" {
		t.Fatalf("before the flood, the users are %q", got)
	}
	outside.lost = true
	for i := range 1000 {
		send(token(fmt.Sprint("forged-", i), "router", later))
	}
	clock.SetTime(start.Add(acceptedFor))
	steps := []struct {
		reason, token string
		isLost        bool
		want          string
	}{
		{"an account that was accepted before", known, false, "known"},
		{"it again, without a review", known, false, "known"},
		{"an account that was accepted before, and is deleted", deleted, true, "nobody"},
		{"an account that was never accepted waits for the end of the flood", late, false, "no answer"},
		{"a forged token", token("forged", "router", later), false, "no answer"},
	}
	for _, step := range steps {
		inside.lost = step.isLost
		if got := send(step.token); got != step.want {
			t.Errorf("%s: %s, want %s", step.reason, got, step.want)
		}
	}
	clock.SetTime(clock.Now().Add(acceptedFor))
	inside.lost = false
	if got := send(deleted); got != "no answer" || inside.left != 1 {
		t.Errorf("a token that was refused is %s with %d renewals left: it counts as accepted", got, inside.left)
	}
}

// slow is an API server that does not answer until it is released.
type slow struct {
	api
	asked   chan struct{}
	release chan struct{}
}

func (s *slow) User(ctx context.Context, token string, audiences ...string) (*authenticationv1.UserInfo, error) {
	s.asked <- struct{}{}
	<-s.release
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.api.User(ctx, token, audiences...)
}

// TestRequestsShareAReview: requests with the same token need one review, even if the first of them ends early.
func TestRequestsShareAReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &slow{asked: make(chan struct{}, 10), release: make(chan struct{})}
		tokens := New(Settings{Audience: "router"}, Reviewers{New: server, Renewals: server, Rights: server}, 1,
			clocktesting.NewFakePassiveClock(start))
		text := token("sa", "router", start.Add(time.Hour))
		ask := func(ctx context.Context) <-chan error {
			done := make(chan error, 1)
			go func() {
				user, err := tokens.User(ctx, text)
				if err == nil && user == nil {
					err = errors.New("the user is nobody")
				}
				done <- err
			}()
			synctest.Wait()
			return done
		}
		leaving, leave := context.WithCancel(t.Context())
		first, second, third := ask(leaving), ask(t.Context()), ask(t.Context())
		leave()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the request that left got %v", err)
		}
		close(server.release)
		if err := errors.Join(<-second, <-third); err != nil {
			t.Error(err)
		}
		if len(server.asked) != 1 {
			t.Errorf("three requests took %d reviews", len(server.asked))
		}
	})
}

// TestOldestReviewIsForgotten: when the memory is full, the tokens in use stay.
func TestOldestReviewIsForgotten(t *testing.T) {
	server := &api{}
	clock := clocktesting.NewFakePassiveClock(start)
	tokens := New(Settings{Audience: "router"}, server.reviewers(), 1, clock)
	send := func(name string, expires time.Duration) {
		if _, err := tokens.User(t.Context(), token(name, "router", start.Add(expires))); err != nil {
			t.Fatal(err)
		}
	}
	isKept := func(name string, expires time.Duration) bool {
		_, ok := tokens.accepted[sha256.Sum256([]byte(token(name, "router", start.Add(expires))))]
		return ok
	}
	send("oldest", 2*time.Hour)
	send("expired", 2*time.Minute)
	clock.SetTime(start.Add(time.Second))
	for i := range mostTokens - 2 {
		send(fmt.Sprint(i), 2*time.Hour)
	}
	clock.SetTime(start.Add(2 * time.Minute))
	send("new", 2*time.Hour)
	if !isKept("oldest", 2*time.Hour) || isKept("expired", 2*time.Minute) || len(tokens.accepted) != mostTokens {
		t.Error("a lapsed token that can be renewed is forgotten, or an expired one is kept")
	}
	send("newer", 2*time.Hour)
	if isKept("oldest", 2*time.Hour) || !isKept("new", 2*time.Hour) || len(tokens.accepted) != mostTokens {
		t.Error("the token with the oldest review is kept")
	}
}

// TestMemoryIsBounded: any number of forged or valid tokens uses a bounded amount of memory.
func TestMemoryIsBounded(t *testing.T) {
	server := &api{}
	tokens := New(Settings{Audience: "router"}, server.reviewers(), 1, clocktesting.NewFakePassiveClock(start))
	for _, isLost := range []bool{true, false} {
		server.lost = isLost
		for i := range mostTokens + 100 {
			server.asked = nil
			if _, err := tokens.User(t.Context(), token(fmt.Sprint(i, isLost), "router", start.Add(time.Hour))); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range mostUsers + 100 {
		tokens.group(fmt.Sprintf("system:serviceaccount:namespace-%d:sa", i), start)
	}
	if len(tokens.accepted) > mostTokens || len(tokens.refused) > mostRefused || len(tokens.users) > mostUsers || len(tokens.groups) > mostUsers {
		t.Errorf("%d tokens, %d refused ones, %d users and %d namespaces are kept",
			len(tokens.accepted), len(tokens.refused), len(tokens.users), len(tokens.groups))
	}
}
