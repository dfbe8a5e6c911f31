// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const secret = "sk-0123456789abcdef"

func data(pairs ...string) map[string][]byte {
	out := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = []byte(pairs[i+1])
	}
	return out
}

func TestParse(t *testing.T) {
	cases := []struct {
		reason string
		data   map[string][]byte
		want   Key
		err    string
	}{
		{
			"all fields, a line's end after the key", data("key", secret+"\n", "namespaces", "a, b", "models", "phi-4,qwen*", "requestsPerMinute", "60", "tokensPerMinute", "1000"),
			Key{Name: "n", Namespaces: []string{"a", "b"}, Models: []string{"phi-4", "qwen*"}, RequestsPerMinute: 60, TokensPerMinute: 1000},
			"",
		},
		{"no namespace is no right", data("key", secret), Key{}, `the key in Secret "n" is not used: namespaces: missing; name those whose models the key reaches, or "*"`},
		{"a mistyped limit would be none", data("key", secret, "namespaces", "a", "requestPerMinute", "1"), Key{}, `the key in Secret "n" is not used: requestPerMinute: unknown field`},
		{"a limit of nothing", data("key", secret, "namespaces", "a", "tokensPerMinute", "0"), Key{}, `the key in Secret "n" is not used: tokensPerMinute: "0" is not a number from 1 to 2147483647`},
		{"a key that can be guessed", data("key", "secret", "namespaces", "a"), Key{}, `the key in Secret "n" is not used: key: it has 6 characters, and 16 are the least`},
		{"an empty list would allow everything", data("key", secret, "namespaces", "a", "models", " "), Key{}, `the key in Secret "n" is not used: models: empty; name models, or remove the field to allow all`},
		{"a broken pattern would allow nothing", data("key", secret, "namespaces", "a", "models", "[a"), Key{}, `the key in Secret "n" is not used: models: "[a" is not a pattern`},
		{"no key", data("namespaces", "a"), Key{}, `the key in Secret "n" is not used: key: missing`},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			got, err := Parse("n", c.data)
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Errorf("the error is %v, want %s", err, c.err)
				}
				return
			}
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(Key{})); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func client(t *testing.T, keys *Keys, pairs ...string) *Client {
	t.Helper()
	key, err := Parse("n", data(append([]string{"key", secret}, pairs...)...))
	if err != nil {
		t.Fatal(err)
	}
	keys.Set([]Key{key})
	return keys.Find(secret)
}

func TestRights(t *testing.T) {
	c := client(t, NewKeys(1), "namespaces", "a", "models", "phi*,a:qwen,Org/*")
	type right struct{ A, B, Phi, Qwen, ByID, Slash, OtherOrg bool }
	got := right{c.Sees("a"), c.Sees("b"), c.Allows("phi-4"), c.Allows("qwen"), c.Allows("qwen", "a:qwen"), c.Allows("phi/4"), c.Allows("Other/x")}
	if diff := cmp.Diff(right{A: true, Phi: true, ByID: true, Slash: true}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if all := client(t, NewKeys(1), "namespaces", "*"); !all.Sees("b") || !all.Allows("x") {
		t.Error("a key of all namespaces does not reach one")
	}
	if anybody := Anybody(); !anybody.Sees("a") || !anybody.Allows("x") || anybody.CacheSalt() != "" || anybody.Admit(time.Time{}, 1) != nil {
		t.Error("without keys somebody is refused")
	}
}

func TestLimits(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	c := client(t, NewKeys(1), "namespaces", "a", "requestsPerMinute", "2")
	for range 2 {
		if excess := c.Admit(now, 1); excess != nil {
			t.Fatalf("refused within the limit: %v", excess)
		}
	}
	if diff := cmp.Diff(&Excess{"2 requests per minute", 30 * time.Second}, c.Admit(now, 1)); diff != "" {
		t.Errorf("the third request (-want +got):\n%s", diff)
	}
	if excess := c.Admit(now.Add(30*time.Second), 1); excess != nil {
		t.Errorf("refused after the advised time: %v", excess)
	}

	c = client(t, NewKeys(1), "namespaces", "a", "tokensPerMinute", "600")
	if excess := c.Admit(now, 300); excess != nil {
		t.Fatalf("refused within the limit: %v", excess)
	}
	c.Charge(now, 900) // a long answer: 600 over
	if diff := cmp.Diff(&Excess{"600 tokens per minute", 60100 * time.Millisecond}, c.Admit(now, 1)); diff != "" {
		t.Errorf("after a long answer (-want +got):\n%s", diff)
	}
	if excess := c.Admit(now.Add(61*time.Second), 1); excess != nil {
		t.Errorf("refused after the advised time: %v", excess)
	}
}

// TestOneChargeIsBounded: a false usage closes a key for an hour at most, and costs no time.
func TestOneChargeIsBounded(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for _, perMinute := range []string{"1", "100", "2147483647"} {
		c := client(t, NewKeys(3), "namespaces", "a", "tokensPerMinute", perMinute)
		c.Charge(now, math.MaxInt)
		if c.Admit(now.Add(50*time.Minute), 1) == nil {
			t.Errorf("at %s per minute, a charge of an hour is forgotten after 50 minutes", perMinute)
		}
		// One token per minute is a burst for each of three routers.
		if excess := c.Admit(now.Add(3*time.Hour+time.Minute), 1); excess != nil {
			t.Errorf("at %s per minute, the key waits for another %s", perMinute, excess.Wait)
		}
	}
}

// TestRoutersShareLimits: the shares of all routers are the limit.
func TestRoutersShareLimits(t *testing.T) {
	now, admitted := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), 0
	for range 4 {
		c := client(t, NewKeys(4), "namespaces", "a", "requestsPerMinute", "100")
		for c.Admit(now, 1) == nil {
			admitted++
		}
	}
	if admitted != 100 {
		t.Errorf("4 routers admit %d requests at once, want 100", admitted)
	}
}

func TestSetKeepsState(t *testing.T) {
	now, keys := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), NewKeys(1)
	if client(t, keys, "namespaces", "a", "requestsPerMinute", "1").Admit(now, 1) != nil {
		t.Fatal("the first request is refused")
	}
	if client(t, keys, "namespaces", "a,b", "requestsPerMinute", "1").Admit(now, 1) == nil {
		t.Error("a change of the namespaces resets the limit")
	}
	if client(t, keys, "namespaces", "a", "requestsPerMinute", "2").Admit(now, 1) != nil {
		t.Error("a higher limit has no effect")
	}
	one, _ := Parse("one", data("key", secret, "namespaces", "a"))
	two, _ := Parse("two", data("key", secret, "namespaces", "*"))
	if diff := cmp.Diff([]string{"two"}, keys.Set([]Key{two, one})); diff != "" || keys.Find(secret).Name() != "one" {
		t.Errorf("two Secrets with one key (-want +got):\n%s", diff)
	}
	keys.Set(nil)
	if keys.Find(secret) != nil {
		t.Error("a deleted key is still valid")
	}
}
