// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package limit identifies a client, and decides which models it may use and how much.
//
// A key gives access only to the namespaces that the administrator named in its Secret. The package must not know HTTP,
// replicas or how keys are stored.
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

// Key is a client's key with its rights and limits, from a Secret.
type Key struct {
	// Name is the name of the Secret.
	Name string
	// Namespaces are the namespaces whose models the key may use; "*" means all.
	Namespaces []string
	// Models are the allowed models, as patterns of path.Match. Unlike there, "*" also matches slashes. If there are
	// none, the key may use all models of its namespaces.
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

// Parse reads a key from the data of a Secret. An unknown field is an error: a limit with a mistyped name would have no
// effect.
func Parse(name string, data map[string][]byte) (Key, error) {
	out := Key{Name: name}
	var errs []error
	for field, value := range data {
		text := strings.TrimSpace(string(value))
		var err error
		switch field {
		case FieldKey:
			if len(text) < minKey {
				err = fmt.Errorf("the key has %d characters: at least %d are needed", len(text), minKey)
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
		errs = append(errs, errors.New(`namespaces: missing; name the namespaces whose models the key may use, or "*"`))
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

// patterns splits a list of patterns. It refuses an empty list, which would otherwise allow all models.
func patterns(text string) ([]string, error) {
	out := split(text)
	if len(out) == 0 {
		return nil, errors.New("empty; name models, or remove the field to allow all models")
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

// Client is a key, an account or anybody, with the state of its limits.
type Client struct {
	key Key
	// group is the name of the group that shares the limits; empty for a key, which has limits of its own.
	group            string
	requests, tokens *bucket
	held             *atomic.Int64
}

// Anybody returns a client without a key. It may use all models, without limits.
func Anybody() *Client { return &Client{key: Key{Namespaces: []string{"*"}}, held: &atomic.Int64{}} }

// Limits are the limits of a client per minute; 0 means none.
type Limits struct{ RequestsPerMinute, TokensPerMinute int }

// NewGroup returns a group of clients without keys that share limits. Member returns its clients.
func NewGroup(name string, limits Limits, routers int) *Client {
	share := NewKeys(routers)
	return &Client{
		key:      Key{RequestsPerMinute: limits.RequestsPerMinute, TokensPerMinute: limits.TokensPerMinute},
		group:    name,
		requests: share.bucket(limits.RequestsPerMinute), tokens: share.bucket(limits.TokensPerMinute), held: &atomic.Int64{},
	}
}

// Member returns a client of the group. It may use no namespaces until Within adds some.
func (c *Client) Member(name, salt string) *Client {
	out := *c
	out.key.Name, out.key.salt = name, salt
	return &out
}

// Within returns a copy of the client for other namespaces. The copy shares the limits.
func (c *Client) Within(namespaces []string) *Client {
	out := *c
	out.key.Namespaces = namespaces
	return &out
}

// Name returns the name of the key or of the account; empty for anybody.
func (c *Client) Name() string { return c.key.Name }

// Group returns the name under which limits and metrics count the client: the name of its group, or else its own.
func (c *Client) Group() string { return cmp.Or(c.group, c.key.Name) }

// Hold adds to the bytes of memory that the client uses, and returns their sum.
func (c *Client) Hold(more int64) int64 { return c.held.Add(more) }

// CacheSalt returns the salt that separates the client's prompts from other clients' in a prefix cache. It is empty for
// anybody.
func (c *Client) CacheSalt() string { return c.key.salt }

// Sees reports whether the client may use models of a namespace.
func (c *Client) Sees(namespace string) bool {
	return slices.Contains(c.key.Namespaces, "*") || slices.Contains(c.key.Namespaces, namespace)
}

// Allows reports whether the client may use a model with these names. One allowed name is enough.
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

// flat replaces slashes, so that "*" also matches hub names of the form ORGANISATION/MODEL.
func flat(name string) string { return strings.ReplaceAll(name, "/", "\n") }

// Excess is a limit that a request would exceed.
type Excess struct {
	// Limit describes the limit for the client.
	Limit string
	// Wait is the time until the next try.
	Wait time.Duration
}

// Bill has the tokens charged for a request. The zero value is the bill of a request that was not admitted.
type Bill struct {
	tokens  *bucket
	charged int
}

// Admit charges the client for the estimated prompt of a request. If a limit is reached, it returns that limit and
// charges nothing. Concurrent requests may all pass while one token is left and overdraw the limit; later requests then
// wait.
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

// mostMinutes limits the charge of one request, in minutes of the client's limit. No single answer blocks a key for
// longer.
const mostMinutes = 60

// Settle corrects the charge of the request to the tokens that it used: it refunds the rest of an estimate that was too
// high, or charges the difference. The charge may exceed the limit; later requests then wait.
func (b *Bill) Settle(now time.Time, tokens int) {
	if b == nil || b.tokens == nil {
		return
	}
	next := int(max(0, min(float64(tokens), mostMinutes*b.tokens.burst)))
	b.tokens.add(now, float64(b.charged-next))
	b.charged = next
}

func limitText(n int, what string) string { return fmt.Sprintf("%d %s per minute", n, what) }

// Keys has the clients with keys. The zero value has none.
type Keys struct {
	mu     sync.RWMutex
	byHash map[[sha256.Size]byte]*Client
	// routers is the number of routers, which share the limits.
	routers int
}

// NewKeys returns an empty set of keys. Each router enforces its share of each limit.
func NewKeys(routers int) *Keys { return &Keys{routers: max(1, routers)} }

// Set replaces all keys. An unchanged key keeps the state of its limits. If several Secrets have the same key, Set uses
// the first one by name, and returns the names of the others.
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

// bucket returns the bucket for this router's share of a limit, or nil for no limit. A client may use the share of a
// minute at once.
func (k *Keys) bucket(perMinute int) *bucket {
	if perMinute == 0 {
		return nil
	}
	share := float64(perMinute) / float64(k.routers)
	return newBucket(share/time.Minute.Seconds(), max(1, int(share)))
}

// Find returns the client of a key, or nil. It looks up a hash, so that the time of a lookup reveals nothing about
// other keys.
func (k *Keys) Find(key string) *Client {
	hash := sha256.Sum256([]byte(key))
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.byHash[hash]
}
