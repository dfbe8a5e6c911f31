// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tokens admits clients with a token of a ServiceAccount. The API server decides whose token it is and which
// namespaces the account may use.
//
// It decides how long an answer of the API server holds, and how many are kept. Without an answer nobody is admitted. It
// must not know HTTP or models.
package tokens

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/router/limit"
)

// Verb and Resource are the right a user needs in a namespace. It covers Workspaces and InferenceSets. A user with read
// access alone may not use their machines.
const (
	Verb     = "use"
	Group    = "kaito.sh"
	Resource = "workspaces"
)

const (
	// acceptedFor is how long a deleted account is still admitted, at most.
	acceptedFor = time.Minute
	// allowedFor is how long a right that was taken away still holds, and deniedFor how long a new one does not.
	allowedFor, deniedFor = 30 * time.Second, 5 * time.Second
	// refusedFor spares the API server the same invalid token.
	refusedFor = 5 * time.Second
	// mostReviews bounds the reviews of rights for one request. They run one after another.
	mostReviews = 50
	// staleFor is how long a refusal suffices if its renewal would exceed mostReviews.
	staleFor = 10 * time.Minute
	// mostTokens, mostRefused and mostUsers bound the memory.
	mostTokens, mostRefused, mostUsers = 10_000, 1_000, 10_000
)

// RenewalsPerSecond suffice to renew every remembered token as often as its acceptance lapses.
const RenewalsPerSecond = mostTokens/int(acceptedFor/time.Second) + 1

// ErrBusy reports that so many reviews wait for their turn that the API server was not asked. Reviewers wrap it.
var ErrBusy = errors.New("too many tokens are waiting for a review")

// ErrUnfinished reports that the rights in more namespaces are unknown than one request may review. The next request
// continues.
var ErrUnfinished = fmt.Errorf("the rights in more than %d namespaces are unknown", mostReviews)

// Authenticator is the API server for tokens.
type Authenticator interface {
	// User returns nil for a token that is valid for none of the audiences. It has a deadline of its own.
	User(ctx context.Context, token string, audiences ...string) (*authenticationv1.UserInfo, error)
}

// Authorizer is the API server for rights.
type Authorizer interface {
	MayUse(ctx context.Context, user *authenticationv1.UserInfo, what authorizationv1.ResourceAttributes) (bool, error)
}

// Reviewers have a rate limit each. Anybody can invent tokens and exhaust the limit of New, but not the other limits.
type Reviewers struct {
	// New reviews tokens without an earlier acceptance.
	New Authenticator
	// Renewals review tokens again whose last review accepted them.
	Renewals Authenticator
	// Rights review the access of accepted users.
	Rights Authorizer
}

// Settings of the way in.
type Settings struct {
	// Audience that a token must have. It must not be the API server's, because the router could then act as the client.
	Audience string
	// Limits of all accounts of a namespace together. Whoever may create accounts there could multiply limits of each.
	Limits limit.Limits
}

// Tokens are the users of the last tokens. They are safe for concurrent use.
type Tokens struct {
	settings  Settings
	reviewers Reviewers
	routers   int
	clock     clock.PassiveClock
	reviewing singleflight.Group // by hash

	mu sync.Mutex
	// accepted has tokens until they expire, also those whose review has lapsed.
	accepted map[[sha256.Size]byte]acceptance
	refused  map[[sha256.Size]byte]time.Time // until when
	users    map[string]*User
	groups   map[string]*group // by namespace
}

// group is the state of the limits of a namespace's accounts.
type group struct {
	limits *limit.Client
	seen   time.Time
}

type acceptance struct {
	user *User
	// until is the end of the review, and expires the end of the token.
	until, expires time.Time
}

// User is an account with its rights as of late, and the limits of its namespace.
type User struct {
	info   authenticationv1.UserInfo
	client *limit.Client

	mu     sync.Mutex
	seen   time.Time
	rights map[string]right // by namespace
}

type right struct {
	isAllowed bool
	until     time.Time
}

// Client returns the user as a client that reaches no namespace.
func (u *User) Client() *limit.Client { return u.client }

// New returns tokens of nobody. Each of the routers enforces its share of the limits.
func New(settings Settings, reviewers Reviewers, routers int, now clock.PassiveClock) *Tokens {
	return &Tokens{
		settings: settings, reviewers: reviewers, routers: routers, clock: now,
		accepted: map[[sha256.Size]byte]acceptance{}, refused: map[[sha256.Size]byte]time.Time{}, users: map[string]*User{},
		groups: map[string]*group{},
	}
}

// User returns the user of a token, or nil if it is not accepted. An error means that the API server did not answer, or,
// with ErrBusy, that it was not asked.
func (t *Tokens) User(ctx context.Context, token string) (*User, error) {
	now := t.clock.Now()
	claims, ok := read(token)
	if !ok || !slices.Contains(claims.Audiences, t.settings.Audience) || !now.Before(claims.Expires) {
		return nil, nil //nolint:nilnil // nobody, and no failure
	}
	hash := sha256.Sum256([]byte(token))
	if user, isKnown := t.known(hash, now); isKnown {
		return user, nil
	}
	// Requests with the same token share a review. It outlives the first of them, because others may wait for it.
	reviewed := t.reviewing.DoChan(string(hash[:]), func() (any, error) {
		return t.review(context.WithoutCancel(ctx), token, hash, claims.Expires)
	})
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the review of a token: %w", ctx.Err())
	case result := <-reviewed:
		user, _ := result.Val.(*User)
		return user, result.Err
	}
}

// review has the API server review a token, and remembers the result.
func (t *Tokens) review(ctx context.Context, token string, hash [sha256.Size]byte, expires time.Time) (*User, error) {
	now := t.clock.Now()
	if user, isKnown := t.known(hash, now); isKnown { // another review has just ended
		return user, nil
	}
	info, err := t.authenticator(hash).User(ctx, token, t.settings.Audience)
	if err != nil {
		return nil, err
	}
	if info != nil && !isAccount(info.Username) { // another issuer may write any subject, but its users have other names
		info = nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if info == nil {
		delete(t.accepted, hash)
		makeRoom(t.refused, mostRefused, func(until time.Time) bool { return !now.Before(until) })
		t.refused[hash] = t.clock.Now().Add(refusedFor) // the review may have waited for longer than that
		return nil, nil                                 //nolint:nilnil // nobody, and no failure
	}
	until := now.Add(acceptedFor)
	if expires.Before(until) {
		until = expires
	}
	if _, isRenewed := t.accepted[hash]; !isRenewed {
		t.forget(now)
	}
	user := t.remember(info, now)
	t.accepted[hash] = acceptance{user, until, expires}
	return user, nil
}

// authenticator returns the reviewer of a token: no flood of unknown tokens delays the renewal of an accepted one.
func (t *Tokens) authenticator(hash [sha256.Size]byte) Authenticator {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, wasAccepted := t.accepted[hash]; wasAccepted {
		return t.reviewers.Renewals
	}
	return t.reviewers.New
}

// forget makes room for another accepted token. It removes the tokens that have expired. Without any, it removes the one
// with the oldest review.
func (t *Tokens) forget(now time.Time) {
	if len(t.accepted) < mostTokens {
		return
	}
	var oldest [sha256.Size]byte
	var end time.Time
	for hash, found := range t.accepted {
		if !now.Before(found.expires) {
			delete(t.accepted, hash)
		} else if end.IsZero() || found.until.Before(end) {
			oldest, end = hash, found.until
		}
	}
	if len(t.accepted) >= mostTokens {
		delete(t.accepted, oldest)
	}
}

// known returns what was decided about a token not long ago.
func (t *Tokens) known(hash [sha256.Size]byte, now time.Time) (user *User, isKnown bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found, ok := t.accepted[hash]; ok && now.Before(found.until) {
		return found.user, true
	}
	return nil, now.Before(t.refused[hash])
}

// remember returns the state of a user. Tokens are renewed every hour, and accounts may be created again; the limits of
// their namespace stay.
func (t *Tokens) remember(info *authenticationv1.UserInfo, now time.Time) *User {
	shared := t.group(info.Username, now)
	id := info.Username + "\n" + info.UID
	user := t.users[id]
	if user == nil {
		makeRoom(t.users, mostUsers, func(u *User) bool { return u.isIdle(now) })
		// The name is no secret; the UID is, outside of the namespace.
		salt := sha256.Sum256([]byte("modelberth cache salt\n" + id))
		user = &User{
			client: shared.Member(info.Username, hex.EncodeToString(salt[:16])),
			rights: map[string]right{},
		}
		t.users[id] = user
	}
	user.mu.Lock()
	defer user.mu.Unlock()
	user.info, user.seen = *info, now
	return user
}

// group returns the limits of an account's namespace.
func (t *Tokens) group(username string, now time.Time) *limit.Client {
	namespace, _, _ := strings.Cut(strings.TrimPrefix(username, accountPrefix), ":")
	shared := t.groups[namespace]
	if shared == nil {
		makeRoom(t.groups, mostUsers, func(g *group) bool { return now.Sub(g.seen) >= idle })
		// Kubernetes has the accounts of a namespace in a group of this name.
		shared = &group{limits: limit.NewGroup("system:serviceaccounts:"+namespace, t.settings.Limits, t.routers)}
		t.groups[namespace] = shared
	}
	shared.seen = now
	return shared.limits
}

// idle is when limits are full again, and there is nothing to remember.
const idle = time.Hour

func (u *User) isIdle(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return now.Sub(u.seen) >= idle
}

// makeRoom keeps a map below a size: it removes what has ended, and otherwise any entry.
func makeRoom[K comparable, V any](of map[K]V, most int, hasEnded func(V) bool) {
	if len(of) < most {
		return
	}
	for key, value := range of {
		if hasEnded(value) {
			delete(of, key)
		}
	}
	for key := range of {
		if len(of) < most {
			return
		}
		delete(of, key)
	}
}

// Within returns the user as a client of those namespaces that it may use. Of many namespaces, it first asks for the right
// in the whole cluster.
func (t *Tokens) Within(ctx context.Context, user *User, namespaces []string) (*limit.Client, error) {
	allowed, unknown, stale := user.known(namespaces, t.clock.Now())
	if len(unknown) > mostReviews {
		if may, err := t.mayUse(ctx, user, metav1.NamespaceAll); err != nil || may {
			return user.client.Within(namespaces), err
		}
	}
	due := slices.Concat(unknown, stale)
	for _, namespace := range due[:min(len(due), mostReviews)] {
		may, err := t.mayUse(ctx, user, namespace)
		if err != nil {
			return nil, err
		}
		if may {
			allowed = append(allowed, namespace)
		}
	}
	if len(unknown) > mostReviews {
		return nil, ErrUnfinished
	}
	return user.client.Within(allowed), nil
}

// known sorts namespaces by what is known about the user's right: those that it may use, those with no answer that
// suffices, and those with a stale refusal, the oldest first.
func (u *User) known(namespaces []string, now time.Time) (allowed, unknown, stale []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, namespace := range namespaces {
		found, isKnown := u.rights[namespace]
		holds := now.Before(found.until)
		switch {
		case holds && found.isAllowed:
			allowed = append(allowed, namespace)
		case holds: // refused
		case isKnown && !found.isAllowed && now.Before(found.until.Add(staleFor-deniedFor)):
			stale = append(stale, namespace)
		default:
			unknown = append(unknown, namespace)
		}
	}
	slices.SortStableFunc(stale, func(a, b string) int { return u.rights[a].until.Compare(u.rights[b].until) })
	return allowed, unknown, stale
}

func (t *Tokens) mayUse(ctx context.Context, user *User, namespace string) (bool, error) {
	now := t.clock.Now()
	user.mu.Lock()
	found, info := user.rights[namespace], user.info
	user.mu.Unlock()
	if now.Before(found.until) {
		return found.isAllowed, nil
	}
	may, err := t.reviewers.Rights.MayUse(ctx, &info, authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: Verb, Group: Group, Resource: Resource,
	})
	if err != nil {
		return false, err
	}
	holds := deniedFor
	if may {
		holds = allowedFor
	}
	user.mu.Lock()
	defer user.mu.Unlock()
	makeRoom(user.rights, mostTokens, func(r right) bool { return !now.Before(r.until) })
	user.rights[namespace] = right{may, now.Add(holds)}
	return may, nil
}

// claims are what a token says of itself. Only the API server knows whether it is true.
type claims struct {
	Audiences []string
	Expires   time.Time
}

// read reads the claims of a token. Texts that cannot be the token of a ServiceAccount do not reach the API server.
func read(token string) (out claims, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return out, false
	}
	var header struct {
		Algorithm string `json:"alg"`
	}
	var payload struct {
		Subject   string          `json:"sub"`
		Audiences json.RawMessage `json:"aud"`
		Expires   int64           `json:"exp"`
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || len(signature) == 0 || !decode(parts[0], &header) || !decode(parts[1], &payload) {
		return out, false
	}
	if header.Algorithm == "" || payload.Expires <= 0 || !isAccount(payload.Subject) {
		return out, false
	}
	out.Expires = time.Unix(payload.Expires, 0)
	var one string
	if json.Unmarshal(payload.Audiences, &one) == nil {
		out.Audiences = []string{one}
		return out, true
	}
	return out, json.Unmarshal(payload.Audiences, &out.Audiences) == nil
}

// decode decodes a part of a token.
func decode(part string, into any) bool {
	text, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && json.Unmarshal(text, into) == nil
}

// accountPrefix begins the usernames of ServiceAccounts: system:serviceaccount:NAMESPACE:NAME.
const accountPrefix = "system:serviceaccount:"

// isAccount reports whether a subject has the form of a ServiceAccount's name.
func isAccount(subject string) bool {
	account, isPrefixed := strings.CutPrefix(subject, accountPrefix)
	namespace, name, _ := strings.Cut(account, ":")
	return isPrefixed && namespace != "" && name != ""
}
