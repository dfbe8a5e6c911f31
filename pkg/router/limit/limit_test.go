// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"math"
	"math/rand/v2"
	"slices"
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
		{"no namespace is no right", data("key", secret), Key{}, `the key in Secret "n" is not used: namespaces: missing; name the namespaces whose models the key may use, or "*"`},
		{"a mistyped limit would be none", data("key", secret, "namespaces", "a", "requestPerMinute", "1"), Key{}, `the key in Secret "n" is not used: requestPerMinute: unknown field`},
		{"a limit of nothing", data("key", secret, "namespaces", "a", "tokensPerMinute", "0"), Key{}, `the key in Secret "n" is not used: tokensPerMinute: "0" is not a number from 1 to 2147483647`},
		{"a key that can be guessed", data("key", "secret", "namespaces", "a"), Key{}, `the key in Secret "n" is not used: key: the key has 6 characters: at least 16 are needed`},
		{"an empty list would allow everything", data("key", secret, "namespaces", "a", "models", " "), Key{}, `the key in Secret "n" is not used: models: empty; name models, or remove the field to allow all models`},
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
	if anybody := Anybody(); !anybody.Sees("a") || !anybody.Allows("x") || anybody.CacheSalt() != "" || refused(anybody, time.Time{}) != nil {
		t.Error("without keys somebody is refused")
	}
}

func TestLimits(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	c := client(t, NewKeys(1), "namespaces", "a", "requestsPerMinute", "2")
	for range 2 {
		if excess := refused(c, now); excess != nil {
			t.Fatalf("refused within the limit: %v", excess)
		}
	}
	if diff := cmp.Diff(&Excess{"2 requests per minute", 30 * time.Second}, refused(c, now)); diff != "" {
		t.Errorf("the third request (-want +got):\n%s", diff)
	}
	if excess := refused(c, now.Add(30*time.Second)); excess != nil {
		t.Errorf("refused after the advised time: %v", excess)
	}

	c = client(t, NewKeys(1), "namespaces", "a", "tokensPerMinute", "600")
	bill, excess := c.Admit(now, 300)
	if excess != nil {
		t.Fatalf("refused within the limit: %v", excess)
	}
	bill.Settle(now, 1200) // a long answer: 600 tokens over the limit
	if diff := cmp.Diff(&Excess{"600 tokens per minute", 60100 * time.Millisecond}, refused(c, now)); diff != "" {
		t.Errorf("after a long answer (-want +got):\n%s", diff)
	}
	if excess := refused(c, now.Add(61*time.Second)); excess != nil {
		t.Errorf("refused after the advised time: %v", excess)
	}
}

// refused admits a request of one token, and returns the limit that forbids it.
func refused(c *Client, now time.Time) *Excess {
	_, excess := c.Admit(now, 1)
	return excess
}

// TestSettle: the final charge of a request is what it used, whatever the estimate was.
func TestSettle(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	left := func(c *Client) float64 {
		c.tokens.wait(now)
		return c.tokens.left
	}
	cases := []struct {
		reason        string
		estimate      int
		took          []int
		want, refills float64 // tokens left: want at once, refills a minute later
	}{
		{"an estimate that was right", 300, []int{300}, 300, 600},
		{"an overestimated prompt comes back", 500, []int{100}, 500, 600},
		{"a request that took nothing", 500, []int{0}, 600, 600},
		{"a long answer", 100, []int{900}, -300, 300},
		{"an estimate above the limit comes back, too", 5000, []int{10}, 590, 600},
		{"no more comes back than was charged", 100_000_000, []int{0}, 600, 600},
		{"a usage below zero is none", 100, []int{-1000}, 600, 600},
		{"settled twice, it counts once", 100, []int{200, 200}, 400, 600},
	}
	for _, test := range cases {
		t.Run(test.reason, func(t *testing.T) {
			c := client(t, NewKeys(1), "namespaces", "a", "tokensPerMinute", "600")
			bill, excess := c.Admit(now, test.estimate)
			if excess != nil {
				t.Fatal(excess)
			}
			for _, took := range test.took {
				bill.Settle(now, took)
			}
			if got := left(c); got != test.want {
				t.Errorf("%v tokens are left, want %v", got, test.want)
			}
			c.tokens.wait(now.Add(time.Minute))
			if got := c.tokens.left; got != test.refills {
				t.Errorf("a minute later %v tokens are left, want %v", got, test.refills)
			}
		})
	}
	var none *Bill
	none.Settle(now, 1) // of a request that was not admitted
}

// TestSettleConserves: in any order of requests and answers, a bucket finally loses exactly what they used.
func TestSettleConserves(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		c := client(t, NewKeys(1), "namespaces", "a", "tokensPerMinute", "1000000000")
		var open []*Bill
		total := 0
		for range 100 {
			if len(open) == 0 || random.IntN(2) == 0 {
				bill, excess := c.Admit(now, random.IntN(10_000))
				if excess != nil {
					t.Fatal(excess)
				}
				open = append(open, bill)
				continue
			}
			took, i := random.IntN(10_000), random.IntN(len(open))
			open[i].Settle(now, took)
			total += took
			open = slices.Delete(open, i, i+1)
		}
		for _, bill := range open {
			bill.Settle(now, 0)
		}
		if got := 1_000_000_000 - int(c.tokens.left); got != total {
			t.Errorf("seed %d: %d tokens are charged, want %d", seed, got, total)
		}
	}
}

// TestOneChargeIsBounded: a false usage blocks a key for at most an hour of its limit.
func TestOneChargeIsBounded(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for _, perMinute := range []string{"1", "100", "2147483647"} {
		c := client(t, NewKeys(3), "namespaces", "a", "tokensPerMinute", perMinute)
		bill, _ := c.Admit(now, 1)
		bill.Settle(now, math.MaxInt)
		if refused(c, now.Add(50*time.Minute)) == nil {
			t.Errorf("at %s per minute, a charge of an hour is forgotten after 50 minutes", perMinute)
		}
		// A limit of one token per minute gives each of three routers a burst of one, but only a third of the refill.
		if excess := refused(c, now.Add(3*time.Hour+time.Minute)); excess != nil {
			t.Errorf("at %s per minute, the key waits for another %s", perMinute, excess.Wait)
		}
	}
}

// TestRoutersShareLimits: the shares of all routers add up to the limit.
func TestRoutersShareLimits(t *testing.T) {
	now, admitted := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), 0
	for range 4 {
		c := client(t, NewKeys(4), "namespaces", "a", "requestsPerMinute", "100")
		for refused(c, now) == nil {
			admitted++
		}
	}
	if admitted != 100 {
		t.Errorf("4 routers admit %d requests at once, want 100", admitted)
	}
}

func TestSetKeepsState(t *testing.T) {
	now, keys := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), NewKeys(1)
	if refused(client(t, keys, "namespaces", "a", "requestsPerMinute", "1"), now) != nil {
		t.Fatal("the first request is refused")
	}
	if refused(client(t, keys, "namespaces", "a,b", "requestsPerMinute", "1"), now) == nil {
		t.Error("a change of the namespaces resets the limit")
	}
	if refused(client(t, keys, "namespaces", "a", "requestsPerMinute", "2"), now) != nil {
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
