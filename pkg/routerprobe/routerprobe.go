// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package routerprobe reads the comparisons of templates from the routers of the cluster.
//
// It decides which pods are routers, and when a read counts. It must not know what follows from the comparisons.
package routerprobe

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/comparison"
)

// Limits of a read of all routers.
const (
	// UsualInterval is how long a read counts.
	UsualInterval = 15 * time.Second
	deadline      = 2 * time.Second
	allDeadline   = 5 * time.Second
	atOnce        = 8
	mostRouters   = 64
	mostBytes     = 1 << 20
	mostSets      = 4096
)

// Settings select the routers and the way to them.
type Settings struct {
	// Namespace and Labels select the pods of the routers.
	Namespace string
	Labels    map[string]string
	// Interval is how long a read counts; 0 means UsualInterval.
	Interval time.Duration
	// Port serves the comparisons.
	Port int
	// IsPlain: the port has no TLS, and needs no token.
	IsPlain bool
	// TokenFile has the token for the audience comparison.Audience. The kubelet renews it.
	TokenFile string
	// CAFile has the authority of the routers' certificates for ServerName. Without it, each router signs its own
	// certificate, which proves nothing.
	CAFile, ServerName string
}

// Reader reads the routers, at most once in each interval.
type Reader struct {
	settings Settings
	live     client.Reader
	clock    clock.PassiveClock

	mu      sync.Mutex
	at      time.Time
	counted map[key]comparison.Pair
	problem error
}

// key is a set with its new template.
type key struct {
	set      types.NamespacedName
	template string
}

// New returns a Reader. live reads past all caches.
func New(settings Settings, live client.Reader, now clock.PassiveClock) *Reader {
	return &Reader{settings: settings, live: live, clock: now}
}

// Compare returns what all routers have counted for the two templates of a set. The error explains, in words for users
// that stay the same, why a router could not be read.
func (r *Reader) Compare(ctx context.Context, set types.NamespacedName, template string) (comparison.Pair, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if age := r.clock.Since(r.at); age < 0 || age >= cmp.Or(r.settings.Interval, UsualInterval) || r.at.IsZero() {
		counted, err := r.readAll(ctx)
		if ctx.Err() != nil {
			return comparison.Pair{}, ctx.Err() // this pass is over, not the routers' fault
		}
		r.at, r.counted, r.problem = r.clock.Now(), counted, err
	}
	return r.counted[key{set, template}], r.problem
}

// readAll reads all routers and adds up their counts. A pod's address may belong to another pod as soon as the first one
// is gone. So the answers count only if the routers have kept their addresses all the time.
func (r *Reader) readAll(ctx context.Context) (map[key]comparison.Pair, error) {
	ctx, cancel := context.WithTimeout(ctx, allDeadline)
	defer cancel()
	before, err := r.routers(ctx)
	if err != nil {
		return nil, err
	}
	client, token, err := r.client()
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	reports := make([]comparison.Report, len(before))
	group := errgroup.Group{}
	group.SetLimit(atOnce)
	for i := range before {
		group.Go(func() error {
			var err error
			reports[i], err = r.readOne(ctx, client, &before[i], token)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	after, err := r.routers(ctx)
	if err != nil {
		return nil, err
	}
	for i := range before {
		if !slices.Contains(after, before[i]) {
			return nil, fmt.Errorf("router %s was replaced meanwhile", before[i].name)
		}
	}
	return total(reports), nil
}

// total adds up the counts of all routers.
func total(reports []comparison.Report) map[key]comparison.Pair {
	out := map[key]comparison.Pair{}
	for i := range reports {
		for _, set := range reports[i].Sets {
			of := key{types.NamespacedName{Namespace: set.Namespace, Name: set.Name}, set.Template}
			out[of] = out[of].Plus(set.Pair)
		}
	}
	return out
}

// router is the pod of a router.
type router struct {
	name, address string
	uid           types.UID
}

var (
	errUnlisted = errors.New("the routers cannot be listed")
	errNone     = errors.New("no router runs")
	errMany     = fmt.Errorf("there are more than %d routers", mostRouters)
)

// routers returns the routers that have an address. The address of a pod that has ended may belong to another pod.
func (r *Reader) routers(ctx context.Context) ([]router, error) {
	list := &corev1.PodList{}
	err := r.live.List(ctx, list, client.InNamespace(r.settings.Namespace), client.MatchingLabels(r.settings.Labels))
	if err != nil {
		return nil, errUnlisted
	}
	var out []router
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.DeletionTimestamp.IsZero() && pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != "" {
			out = append(out, router{name: pod.Name, address: pod.Status.PodIP, uid: pod.UID})
		}
	}
	slices.SortFunc(out, func(a, b router) int { return cmp.Compare(a.name, b.name) })
	switch {
	case len(out) == 0:
		return nil, errNone
	case len(out) > mostRouters:
		return nil, errMany
	}
	return out, nil
}

// client returns a client for the routers, and the token for them.
func (r *Reader) client() (*http.Client, string, error) {
	transport := &http.Transport{ResponseHeaderTimeout: deadline, MaxResponseHeaderBytes: 16 << 10}
	token := ""
	if !r.settings.IsPlain {
		text, err := os.ReadFile(r.settings.TokenFile)
		if err != nil {
			return nil, "", errors.New("the token for the routers cannot be read")
		}
		token = strings.TrimSpace(string(text))
		if transport.TLSClientConfig, err = r.tls(); err != nil {
			return nil, "", err
		}
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, token, nil
}

func (r *Reader) tls() (*tls.Config, error) {
	if r.settings.CAFile == "" { // the token for an impostor is of no use elsewhere
		return &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}, nil //nolint:gosec // nobody could verify it
	}
	text, err := os.ReadFile(r.settings.CAFile)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(text) {
		return nil, errors.New("ca.crt of router.metrics.certificateSecret cannot be read")
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: r.settings.ServerName}, nil
}

// readOne reads the report of one router. Its errors have no addresses and times.
func (r *Reader) readOne(ctx context.Context, client *http.Client, from *router, token string) (comparison.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	scheme := "https"
	if r.settings.IsPlain {
		scheme = "http"
	}
	url := scheme + "://" + net.JoinHostPort(from.address, strconv.Itoa(r.settings.Port)) + comparison.Path
	silent := fmt.Errorf("router %s does not answer on port %d", from.name, r.settings.Port)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return comparison.Report{}, silent
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(request)
	if err != nil {
		return comparison.Report{}, silent
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return comparison.Report{}, fmt.Errorf("router %s answers with status %d", from.name, answer.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostBytes+1))
	if err != nil {
		return comparison.Report{}, silent
	}
	out, isReadable := parse(text)
	if !isReadable {
		return comparison.Report{}, fmt.Errorf("router %s has counts that cannot be read", from.name)
	}
	return out, nil
}

// parse reads a report; false if it is too large, or its counts are impossible.
func parse(text []byte) (comparison.Report, bool) {
	var out comparison.Report
	if len(text) > mostBytes || json.Unmarshal(text, &out) != nil || len(out.Sets) > mostSets {
		return comparison.Report{}, false
	}
	for i := range out.Sets {
		if out.Sets[i].Check() != nil {
			return comparison.Report{}, false
		}
	}
	return out, true
}
