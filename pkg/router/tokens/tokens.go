// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tokens admits clients with the token of a ServiceAccount. The API server decides which account a token
// belongs to, and which namespaces the account may use.
//
// It decides how long the router reuses an answer of the API server, and how many answers it keeps. It admits nobody
// without an answer. It must not know HTTP or models.
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

// Verb, Group and Resource define the right that a user needs in a namespace. The right covers Workspaces and
// InferenceSets. Read access alone does not include the use of their machines.
const (
	Verb     = "use"
	Group    = "kaito.sh"
	Resource = "workspaces"
)

const (
	// acceptedFor is how long the router reuses the acceptance of a token, and thus may admit a deleted account.
	acceptedFor = time.Minute
	// allowedFor is how long a right may still hold after its removal. deniedFor is how long a new right may have no
	// effect.
	allowedFor, deniedFor = 30 * time.Second, 5 * time.Second
	// refusedFor is how long the router refuses an invalid token without another review.
	refusedFor = 5 * time.Second
	// mostReviews is the most reviews of rights for one request. They run one after another.
	mostReviews = 50
	// staleFor is how long the router may reuse a refusal if its renewal would exceed mostReviews.
	staleFor = 10 * time.Minute
	// mostTokens, mostRefused and mostUsers limit the memory, in entries.
	mostTokens, mostRefused, mostUsers = 10_000, 1_000, 10_000
)

// RenewalsPerSecond is enough to renew every stored token each time its acceptance lapses.
const RenewalsPerSecond = mostTokens/int(acceptedFor/time.Second) + 1

// ErrBusy means that the API server got no request, because too many reviews are waiting. Reviewers wrap ErrBusy.
var ErrBusy = errors.New("too many tokens are waiting for a review")

// ErrUnfinished means that a request needs more reviews of rights than one request may cause. The next request
// continues.
var ErrUnfinished = fmt.Errorf("the account's rights in more than %d namespaces are not reviewed yet", mostReviews)

// Authenticator has the API server review tokens.
type Authenticator interface {
	// User returns the user of a token, or nil if the token is valid for none of the audiences. User has its own deadline.
	User(ctx context.Context, token string, audiences ...string) (*authenticationv1.UserInfo, error)
}

// Authorizer has the API server review rights.
type Authorizer interface {
	MayUse(ctx context.Context, user *authenticationv1.UserInfo, what authorizationv1.ResourceAttributes) (bool, error)
}

// Reviewers have separate rate limits. With forged tokens anybody can exhaust the limit of New, but not the others.
type Reviewers struct {
	// New reviews tokens that were not accepted before.
	New Authenticator
	// Renewals reviews accepted tokens again.
	Renewals Authenticator
	// Rights reviews the access of accepted users.
	Rights Authorizer
}

// Settings are the settings for access with tokens.
type Settings struct {
	// Audience is the audience that a token must have. It must not be the API server's: the router could then use the
	// token to act as the client.
	Audience string
	// Limits are the limits of all accounts of a namespace together. With limits per account, a user could multiply them
	// by creating accounts.
	Limits limit.Limits
}

// Tokens has the users of recent tokens. It is safe for concurrent use.
type Tokens struct {
	settings  Settings
	reviewers Reviewers
	routers   int
	clock     clock.PassiveClock
	reviewing singleflight.Group // by hash

	mu sync.Mutex
	// accepted has tokens until they expire, even if their review has lapsed.
	accepted map[[sha256.Size]byte]acceptance
	refused  map[[sha256.Size]byte]time.Time // the end of the refusal
	users    map[string]*User
	groups   map[string]*group // by namespace
}

// group has the limits that the accounts of a namespace share.
type group struct {
	limits *limit.Client
	seen   time.Time
}

type acceptance struct {
	user *User
	// until is when the review lapses, and expires is when the token does.
	until, expires time.Time
}

// User is an account with its recently reviewed rights and the limits of its namespace.
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

// Client returns the user as a client that may use no namespaces.
func (u *User) Client() *limit.Client { return u.client }

// New returns Tokens without users. Each router enforces its share of the limits.
func New(settings Settings, reviewers Reviewers, routers int, now clock.PassiveClock) *Tokens {
	return &Tokens{
		settings: settings, reviewers: reviewers, routers: routers, clock: now,
		accepted: map[[sha256.Size]byte]acceptance{}, refused: map[[sha256.Size]byte]time.Time{}, users: map[string]*User{},
		groups: map[string]*group{},
	}
}

// User returns the user of a token, or nil if the token is refused. ErrBusy means that the API server got no request.
// Other errors mean that it did not answer.
func (t *Tokens) User(ctx context.Context, token string) (*User, error) {
	now := t.clock.Now()
	claims, ok := read(token)
	if !ok || !slices.Contains(claims.Audiences, t.settings.Audience) || !now.Before(claims.Expires) {
		return nil, nil //nolint:nilnil // no user, and no failure
	}
	hash := sha256.Sum256([]byte(token))
	if user, isKnown := t.known(hash, now); isKnown {
		return user, nil
	}
	// Requests with the same token share a review. The review continues if the first request ends, because others may wait
	// for it.
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

// review has the API server review a token, and stores the result.
func (t *Tokens) review(ctx context.Context, token string, hash [sha256.Size]byte, expires time.Time) (*User, error) {
	now := t.clock.Now()
	if user, isKnown := t.known(hash, now); isKnown { // another review of this token has just ended
		return user, nil
	}
	info, err := t.authenticator(hash).User(ctx, token, t.settings.Audience)
	if err != nil {
		return nil, err
	}
	if info != nil && !isAccount(info.Username) { // another issuer may choose any subject, but its users have other names
		info = nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if info == nil {
		delete(t.accepted, hash)
		makeRoom(t.refused, mostRefused, func(until time.Time) bool { return !now.Before(until) })
		t.refused[hash] = t.clock.Now().Add(refusedFor) // the review may have taken longer than refusedFor
		return nil, nil                                 //nolint:nilnil // no user, and no failure
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

// authenticator returns the reviewer for a token. Accepted tokens have a separate reviewer, so that no flood of unknown
// tokens delays their renewal.
func (t *Tokens) authenticator(hash [sha256.Size]byte) Authenticator {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, wasAccepted := t.accepted[hash]; wasAccepted {
		return t.reviewers.Renewals
	}
	return t.reviewers.New
}

// forget makes room for another accepted token. It removes expired tokens. If there are none, it removes the token with
// the oldest review.
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

// known returns the recent decision about a token. isKnown is false if there is none.
func (t *Tokens) known(hash [sha256.Size]byte, now time.Time) (user *User, isKnown bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found, ok := t.accepted[hash]; ok && now.Before(found.until) {
		return found.user, true
	}
	return nil, now.Before(t.refused[hash])
}

// remember returns the stored state of a user, and creates it if necessary. The limits belong to the namespace, so they
// survive renewed tokens and recreated accounts.
func (t *Tokens) remember(info *authenticationv1.UserInfo, now time.Time) *User {
	shared := t.group(info.Username, now)
	id := info.Username + "\n" + info.UID
	user := t.users[id]
	if user == nil {
		makeRoom(t.users, mostUsers, func(u *User) bool { return u.isIdle(now) })
		// The salt contains the UID, which is secret outside the namespace. The name is not.
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
		// Kubernetes puts the accounts of a namespace into a group of this name.
		shared = &group{limits: limit.NewGroup("system:serviceaccounts:"+namespace, t.settings.Limits, t.routers)}
		t.groups[namespace] = shared
	}
	shared.seen = now
	return shared.limits
}

// idle is the time after which limits are full again, so their state need not be stored.
const idle = time.Hour

func (u *User) isIdle(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return now.Sub(u.seen) >= idle
}

// makeRoom keeps a map below a size. It removes entries that have ended, and then any others if necessary.
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

// Within returns the user as a client for the given namespaces that it may use. If many are unknown, it first reviews
// the right in the whole cluster.
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

// known sorts namespaces by the last answer about the user's right. allowed and unknown are namespaces with the right
// and without a usable answer. stale has namespaces with an outdated refusal, the oldest first. Namespaces with a
// recent refusal are left out.
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

// claims are the contents of a token that is not verified yet. Only the API server can verify them.
type claims struct {
	Audiences []string
	Expires   time.Time
}

// read reads the claims of a token. ok is false for text that cannot be the token of a ServiceAccount; such text does
// not reach the API server.
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

// accountPrefix is the prefix of the usernames of ServiceAccounts: system:serviceaccount:NAMESPACE:NAME.
const accountPrefix = "system:serviceaccount:"

// isAccount reports whether a subject has the form of a ServiceAccount's username.
func isAccount(subject string) bool {
	account, isPrefixed := strings.CutPrefix(subject, accountPrefix)
	namespace, name, _ := strings.Cut(account, ":")
	return isPrefixed && namespace != "" && name != ""
}
