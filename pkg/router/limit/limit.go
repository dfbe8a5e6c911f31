// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package limit decides the identity, models and limits of a client.
//
// A key reaches only the namespaces that the administrator named for it. The package must not know HTTP, replicas or
// the storage of keys.
package limit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Key is the right of a client, from a Secret.
type Key struct {
	// Name is the Secret's.
	Name string
	// Namespaces whose models the key reaches; "*" means all.
	Namespaces []string
	// Models that the key may use, as patterns of path.Match, but "*" also matches slashes; none means all of the
	// namespaces.
	Models []string
	// RequestsPerMinute and TokensPerMinute limit the key; 0 means no limit.
	RequestsPerMinute, TokensPerMinute int

	hash [sha256.Size]byte
	salt string
}

// minKey is the shortest accepted key, in characters.
const minKey = 16

// Fields of a Secret.
const (
	FieldKey               = "key"
	FieldNamespaces        = "namespaces"
	FieldModels            = "models"
	FieldRequestsPerMinute = "requestsPerMinute"
	FieldTokensPerMinute   = "tokensPerMinute"
)

// Parse reads a key from the data of a Secret. An unknown field is an error, because a mistyped limit would be none.
func Parse(name string, data map[string][]byte) (Key, error) {
	out := Key{Name: name}
	var errs []error
	for field, value := range data {
		text := strings.TrimSpace(string(value))
		var err error
		switch field {
		case FieldKey:
			if len(text) < minKey {
				err = fmt.Errorf("it has %d characters: at least %d are needed", len(text), minKey)
			}
			out.hash = sha256.Sum256([]byte(text))
			salt := sha256.Sum256([]byte("modelberth cache salt\n" + text))
			out.salt = hex.EncodeToString(salt[:16])
		case FieldNamespaces:
			out.Namespaces = split(text)
		case FieldModels:
			out.Models, err = patterns(text)
		case FieldRequestsPerMinute:
			out.RequestsPerMinute, err = positive(text)
		case FieldTokensPerMinute:
			out.TokensPerMinute, err = positive(text)
		default:
			err = errors.New("unknown field")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, err))
		}
	}
	if _, ok := data[FieldKey]; !ok {
		errs = append(errs, errors.New("key: missing"))
	}
	if len(out.Namespaces) == 0 {
		errs = append(errs, errors.New(`namespaces: missing; name those whose models the key reaches, or "*"`))
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if err := errors.Join(errs...); err != nil {
		return Key{}, fmt.Errorf("the key in Secret %q is not used: %w", name, err)
	}
	return out, nil
}

func split(text string) []string {
	var out []string
	for item := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == '\n' || r == ' ' }) {
		out = append(out, item)
	}
	return out
}

// patterns splits a list. Present and empty, it would allow all models, so it is refused.
func patterns(text string) ([]string, error) {
	out := split(text)
	if len(out) == 0 {
		return nil, errors.New("empty; name models, or remove the field to allow all")
	}
	for _, pattern := range out {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("%q is not a pattern", pattern)
		}
	}
	return out, nil
}

func positive(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1<<31-1 {
		return 0, fmt.Errorf("%q is not a number from 1 to %d", text, 1<<31-1)
	}
	return n, nil
}

// Client is a key with the state of its limits, or anybody.
type Client struct {
	key Key
	// group is the name of the clients that share the limits; empty for a key, which has its own.
	group            string
	requests, tokens *bucket
	held             *atomic.Int64
}

// Anybody returns a client without a key: it reaches all models without limits.
func Anybody() *Client { return &Client{key: Key{Namespaces: []string{"*"}}, held: &atomic.Int64{}} }

// Limits of a client per minute; 0 means none.
type Limits struct{ RequestsPerMinute, TokensPerMinute int }

// NewGroup returns the limits that several clients without keys share. Member returns the clients.
func NewGroup(name string, limits Limits, routers int) *Client {
	share := NewKeys(routers)
	return &Client{
		key:      Key{RequestsPerMinute: limits.RequestsPerMinute, TokensPerMinute: limits.TokensPerMinute},
		group:    name,
		requests: share.bucket(limits.RequestsPerMinute), tokens: share.bucket(limits.TokensPerMinute), held: &atomic.Int64{},
	}
}

// Member returns a client of the group that reaches no namespace: Within gives it some.
func (c *Client) Member(name, salt string) *Client {
	out := *c
	out.key.Name, out.key.salt = name, salt
	return &out
}

// Within returns the same client, with the same limits, for other namespaces.
func (c *Client) Within(namespaces []string) *Client {
	out := *c
	out.key.Namespaces = namespaces
	return &out
}

// Name of the key or of the account; empty for anybody.
func (c *Client) Name() string { return c.key.Name }

// Group is the name that limits and metrics count the client by: that of its group, or its own.
func (c *Client) Group() string { return cmp.Or(c.group, c.key.Name) }

// Hold counts bytes of memory for the client, and returns how many it holds.
func (c *Client) Hold(more int64) int64 { return c.held.Add(more) }

// CacheSalt keeps the client's prompts apart from those of others in a prefix cache; empty for anybody.
func (c *Client) CacheSalt() string { return c.key.salt }

// Sees reports whether the client reaches a namespace.
func (c *Client) Sees(namespace string) bool {
	return slices.Contains(c.key.Namespaces, "*") || slices.Contains(c.key.Namespaces, namespace)
}

// Allows reports whether the client may use a model that goes by any of the names.
func (c *Client) Allows(names ...string) bool {
	if len(c.key.Models) == 0 {
		return true
	}
	for _, pattern := range c.key.Models {
		for _, name := range names {
			if ok, err := path.Match(flat(pattern), flat(name)); err == nil && ok {
				return true
			}
		}
	}
	return false
}

// flat replaces slashes, so that "*" matches the names of a hub: ORGANISATION/MODEL.
func flat(name string) string { return strings.ReplaceAll(name, "/", "\n") }

// Excess is a limit that a request would pass.
type Excess struct {
	// Limit names it, for the client.
	Limit string
	// Wait until the next try.
	Wait time.Duration
}

// Bill has the tokens charged to a request. The zero value is a request not admitted.
type Bill struct {
	tokens  *bucket
	charged int
}

// Admit charges a request with the estimate of its prompt. It returns the limit that forbids the request, or nil.
// Requests at one time may all pass a limit of which one unit is left; later ones wait.
func (c *Client) Admit(now time.Time, prompt int) (*Bill, *Excess) {
	if c.tokens != nil {
		if wait := c.tokens.wait(now); wait > 0 {
			return nil, &Excess{limitText(c.key.TokensPerMinute, "tokens"), wait}
		}
	}
	if c.requests != nil {
		if wait := c.requests.take(now); wait > 0 {
			return nil, &Excess{limitText(c.key.RequestsPerMinute, "requests"), wait}
		}
	}
	bill := &Bill{tokens: c.tokens}
	bill.Settle(now, prompt)
	return bill, nil
}

// mostMinutes bounds the charge of one request in minutes of the limit: no answer closes a key for longer.
const mostMinutes = 60

// Settle replaces the charge of the request by the tokens that it took: the rest of an estimate comes back, and more is
// charged. The charge may exceed the limit; later requests wait for it.
func (b *Bill) Settle(now time.Time, tokens int) {
	if b == nil || b.tokens == nil {
		return
	}
	next := int(max(0, min(float64(tokens), mostMinutes*b.tokens.burst)))
	b.tokens.add(now, float64(b.charged-next))
	b.charged = next
}

func limitText(n int, what string) string { return fmt.Sprintf("%d %s per minute", n, what) }

// Keys are the clients by key. The zero value has none.
type Keys struct {
	mu     sync.RWMutex
	byHash map[[sha256.Size]byte]*Client
	// routers share the limits.
	routers int
}

// NewKeys returns no keys. Each of the routers enforces its share of each limit.
func NewKeys(routers int) *Keys { return &Keys{routers: max(1, routers)} }

// Set replaces all keys. An unchanged key keeps the state of its limits. Of two Secrets with one key, the first by name
// counts; the names of the others are returned.
func (k *Keys) Set(keys []Key) (ignored []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sorted := slices.Clone(keys)
	slices.SortFunc(sorted, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	next := make(map[[sha256.Size]byte]*Client, len(sorted))
	for _, key := range sorted {
		if next[key.hash] != nil {
			ignored = append(ignored, key.Name)
			continue
		}
		client := &Client{
			key: key, requests: k.bucket(key.RequestsPerMinute), tokens: k.bucket(key.TokensPerMinute), held: &atomic.Int64{},
		}
		if old := k.byHash[key.hash]; old != nil {
			client.held = old.held
			if old.key.RequestsPerMinute == key.RequestsPerMinute {
				client.requests = old.requests
			}
			if old.key.TokensPerMinute == key.TokensPerMinute {
				client.tokens = old.tokens
			}
		}
		next[key.hash] = client
	}
	k.byHash = next
	return ignored
}

// bucket allows a minute's share at once.
func (k *Keys) bucket(perMinute int) *bucket {
	if perMinute == 0 {
		return nil
	}
	share := float64(perMinute) / float64(k.routers)
	return newBucket(share/time.Minute.Seconds(), max(1, int(share)))
}

// Find returns the client of a key, or nil. It compares hashes, so the time tells nothing about other keys.
func (k *Keys) Find(key string) *Client {
	hash := sha256.Sum256([]byte(key))
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.byHash[hash]
}
