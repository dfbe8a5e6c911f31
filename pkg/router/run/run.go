// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package run connects the parts of the router: flags, the cluster, the servers and an orderly shutdown.
//
// It decides nothing about requests.
package run

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/modelberth/modelberth/pkg/review"
	"github.com/modelberth/modelberth/pkg/router"
	"github.com/modelberth/modelberth/pkg/router/balance"
	"github.com/modelberth/modelberth/pkg/router/discovery"
	"github.com/modelberth/modelberth/pkg/router/limit"
	"github.com/modelberth/modelberth/pkg/router/tokens"
	"github.com/modelberth/modelberth/pkg/router/wake"
)

// Options are the options of modelberth-router.
type Options struct {
	Address, MetricsAddress, ProbeAddress string
	// MetricsInsecure serves metrics over plain HTTP to everybody.
	MetricsInsecure bool
	// MetricsCertDir has tls.crt and tls.key for metrics. If it is empty, the router uses a self-signed certificate.
	MetricsCertDir string
	// ExtProcAddress is the address for gateways; empty if no gateway asks this router.
	ExtProcAddress string
	// ExtProcInsecure serves gateways without TLS.
	ExtProcInsecure bool
	// ExtProcCertDir has tls.crt and tls.key for gateways. If it is empty, the router uses a self-signed certificate.
	ExtProcCertDir string
	// Scaler has the options of the port for KEDA.
	Scaler ScalerOptions
	// Tokens are the settings for tokens of ServiceAccounts; without an audience, no tokens are accepted.
	Tokens         tokens.Settings
	Scope          discovery.Scope
	Settings       router.Settings
	Routers        int
	MaxConnections int
	MemoryLimit    int64
	DrainDelay     time.Duration
}

// Bind registers the flags.
func (o *Options) Bind(flags *flag.FlagSet) {
	o.Settings = router.Defaults()
	flags.StringVar(&o.Address, "bind-address", ":8000", "address of the API")
	flags.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8443", "address of the metrics")
	flags.BoolVar(&o.MetricsInsecure, "metrics-insecure", false, "serve metrics over plain HTTP without authentication; "+
		"by default, over HTTPS to clients with the RBAC permission to get /metrics")
	flags.StringVar(&o.MetricsCertDir, "metrics-cert-dir", "", "directory with tls.crt and tls.key for metrics; "+
		"default: a self-signed certificate")
	flags.StringVar(&o.ExtProcAddress, "ext-proc-bind-address", "", "address of the endpoint picker for gateways; default: none")
	flags.BoolVar(&o.ExtProcInsecure, "ext-proc-insecure", false, "serve gateways without TLS")
	flags.StringVar(&o.ExtProcCertDir, "ext-proc-cert-dir", "", "directory with tls.crt and tls.key for gateways; "+
		"default: a self-signed certificate")
	flags.StringVar(&o.Scaler.Address, "scaler-bind-address", "", "address for KEDA, in its protocol for external scalers; default: none")
	flags.BoolVar(&o.Scaler.Insecure, "scaler-insecure", false, "serve KEDA without TLS")
	flags.StringVar(&o.Scaler.CertDir, "scaler-cert-dir", "", "directory with tls.crt and tls.key for KEDA, and ca.crt to verify clients and other routers; "+
		"default: a self-signed certificate")
	flags.BoolVar(&o.Scaler.VerifyClients, "scaler-verify-clients", false, "admit KEDA and other routers only with a certificate of the authority in ca.crt of --scaler-cert-dir")
	flags.StringVar(&o.Scaler.Peers, "scaler-peers", "", "headless Service of all routers, HOST:PORT: the answers to KEDA are sums over them; default: this router alone")
	flags.StringVar(&o.ProbeAddress, "health-probe-bind-address", ":8081", "address of the probes")
	flags.Func("watch-namespace", "namespace with models; repeatable; default: all", func(name string) error {
		o.Scope.Namespaces = append(o.Scope.Namespaces, name)
		return nil
	})
	flags.StringVar(&o.Scope.KeyNamespace, "key-namespace", "", "namespace of the Secrets with keys; each such Secret has the label "+
		discovery.LabelKey+"=true")
	flags.BoolVar(&o.Settings.IsOpen, "open", false, "admit clients without a key to all models")
	flags.StringVar(&o.Tokens.Audience, "token-audience", "", "admit ServiceAccounts that send tokens for this audience, to the models of namespaces "+
		"where they may "+tokens.Verb+" "+tokens.Resource+"; default: keys only")
	flags.IntVar(&o.Tokens.Limits.RequestsPerMinute, "token-requests-per-minute", 0, "requests per minute of all ServiceAccounts of a namespace together; 0: no limit")
	flags.IntVar(&o.Tokens.Limits.TokensPerMinute, "token-tokens-per-minute", 0, "tokens per minute of all ServiceAccounts of a namespace together; 0: no limit")
	flags.IntVar(&o.Routers, "routers", 1, "number of routers; each router enforces its share of every limit")
	flags.Int64Var(&o.Settings.MaxBody, "max-body-bytes", o.Settings.MaxBody, "maximum size in bytes of a request's body")
	flags.Int64Var(&o.Settings.BodyBudget, "body-memory-bytes", o.Settings.BodyBudget, "maximum memory in bytes for the bodies of all requests, including edited copies")
	flags.DurationVar(&o.Settings.Deadline, "request-deadline", o.Settings.Deadline, "maximum time from the start of a request to the end of its answer")
	flags.BoolVar(&o.Settings.Resumes, "resume-streams", false, "if a replica dies in mid-answer, let another replica continue the stream")
	flags.Int64Var(&o.Settings.ResumeMemory, "resume-memory-bytes", o.Settings.ResumeMemory,
		"maximum memory in bytes for the answers of streams that another replica could continue; a stream beyond it ends with its replica")
	flags.IntVar(&o.Settings.Hold.Requests, "hold-requests", 0, "maximum number of requests that wait for the first replica of their InferenceSet, which the router wakes; "+
		"at most half may be for one InferenceSet; 0: no request waits")
	flags.Int64Var(&o.Settings.Hold.Bytes, "hold-bytes", o.Settings.Hold.Bytes,
		"maximum memory in bytes for the bodies of waiting requests (--hold-requests); at most half may be for one InferenceSet")
	flags.DurationVar(&o.Settings.Hold.Time, "hold-time", o.Settings.Hold.Time, "maximum time that a request waits for the first replica of its InferenceSet")
	flags.IntVar(&o.MaxConnections, "max-connections", 10000, "maximum number of simultaneous connections from clients")
	flags.Int64Var(&o.MemoryLimit, "memory-limit-bytes", 0, "memory limit of the container in bytes; 0: unknown")
	flags.DurationVar(&o.DrainDelay, "drain-delay", 5*time.Second,
		"how long a terminating router still accepts connections after its readiness probe fails")
}

// Validate reports settings that cannot work.
func (o *Options) Validate() error {
	hold := o.Settings.Hold
	switch {
	case o.Settings.IsOpen == (o.Scope.KeyNamespace != ""):
		return errors.New("set either --key-namespace or --open")
	case o.Routers < 1, o.MaxConnections < 1, o.Settings.MaxBody < 1, o.Settings.Deadline <= 0:
		return errors.New("--routers, --max-connections, --max-body-bytes and --request-deadline must be above 0")
	case o.MetricsInsecure && o.MetricsCertDir != "":
		return errors.New("--metrics-cert-dir has no effect with --metrics-insecure: remove one of them")
	case o.Settings.ResumeMemory < 1:
		return errors.New("--resume-memory-bytes must be above 0")
	case hold.Requests < 0:
		return errors.New("--hold-requests must not be below 0")
	case hold.Requests > 0 && (hold.Bytes < 1 || hold.Time <= 0 || hold.Time >= o.Settings.Deadline):
		return errors.New("--hold-bytes must be above 0, and --hold-time between 0 and --request-deadline")
	case o.Settings.BodyBudget/6 < o.Settings.MaxBody: // a key has half: body, outgrown buffer, edited copy
		return errors.New("--body-memory-bytes must be at least six times --max-body-bytes")
	}
	return errors.Join(o.validateTokens(), o.validateExtProc(), o.Scaler.validate())
}

func (o *Options) validateExtProc() error {
	switch {
	case o.ExtProcAddress == "" && (o.ExtProcInsecure || o.ExtProcCertDir != ""):
		return errors.New("--ext-proc-insecure and --ext-proc-cert-dir need --ext-proc-bind-address")
	case o.ExtProcInsecure && o.ExtProcCertDir != "":
		return errors.New("--ext-proc-cert-dir has no effect with --ext-proc-insecure: remove one of them")
	}
	return nil
}

func (o *Options) validateTokens() error {
	switch {
	case o.Settings.IsOpen && o.Tokens.Audience != "":
		return errors.New("--token-audience has no effect with --open: remove one of them")
	case o.Tokens.Audience == "" && o.Tokens.Limits != limit.Limits{}:
		return errors.New("--token-requests-per-minute and --token-tokens-per-minute need --token-audience")
	case o.Tokens.Limits.RequestsPerMinute < 0, o.Tokens.Limits.TokensPerMinute < 0:
		return errors.New("--token-requests-per-minute and --token-tokens-per-minute must not be below 0")
	}
	return nil
}

// Main runs modelberth-router and returns its exit code.
func Main(args []string, stderr io.Writer) int {
	var o Options
	flags := flag.NewFlagSet("modelberth-router", flag.ContinueOnError)
	flags.SetOutput(stderr)
	o.Bind(flags)
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := o.Validate(); err != nil {
		fmt.Fprintf(stderr, "modelberth-router: %v\n", err)
		return 2
	}
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	o.limitMemory()
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	klog.SetSlogLogger(log)
	config, err := ctrl.GetConfig()
	if err == nil {
		err = Serve(ctrl.SetupSignalHandler(), config, o, log)
	}
	if err != nil {
		log.Error("the router ended", "error", err.Error())
		return 1
	}
	return 0
}

// limitMemory sets the garbage collector's limit to nine tenths of the container's memory. Otherwise, large bodies
// would double the heap between two collections.
func (o *Options) limitMemory() {
	if o.MemoryLimit > 0 {
		debug.SetMemoryLimit(o.MemoryLimit / 10 * 9)
	}
}

// Serve runs the router until the context ends and all requests have their answers.
func Serve(ctx context.Context, config *rest.Config, o Options, log *slog.Logger) error {
	keys := limit.NewKeys(o.Routers)
	found, err := discovery.New(config, o.Scope, keys, log)
	if err != nil {
		return err
	}
	cluster := Cluster{Directory: found, Keys: keys}
	if cluster.Reviews, err = review.ForScrapes(config, nil); err != nil {
		return err
	}
	if o.Tokens.Audience != "" {
		reviewers, err := tokenReviewers(config)
		if err != nil {
			return err
		}
		cluster.Tokens = tokens.New(o.Tokens, reviewers, o.Routers, clock.RealClock{})
	}
	if o.Settings.Hold.Requests > 0 {
		if cluster.Waker, err = wake.New(config, log, clock.RealClock{}); err != nil {
			return err
		}
	}
	return ServeWith(ctx, o, cluster, log)
}

// Directory has the models. Run watches the cluster until the context ends, and calls ready when the models are
// complete.
type Directory interface {
	router.Directory
	Run(ctx context.Context, ready func()) error
}

// Cluster has the router's connections to the cluster.
type Cluster struct {
	Directory Directory
	Keys      *limit.Keys
	// Waker is nil if no request waits for a replica.
	Waker *wake.Waker
	// Reviews decide who may read metrics; nil if anybody may.
	Reviews *review.Reviews
	// Tokens are nil if clients need a key.
	Tokens *tokens.Tokens
}

// tokenReviewers returns reviewers that limit how much load clients with tokens put on the API server. Scrapes use
// separate reviews: a flood of forged tokens must not delay the scrapes that would show it.
func tokenReviewers(config *rest.Config) (tokens.Reviewers, error) {
	const perSecond, burst = 50, 100 // for new tokens and for rights, each with a limiter of its own
	reviews, err := review.New(config, nil, perSecond, burst)
	if err != nil {
		return tokens.Reviewers{}, err
	}
	renewals, err := review.New(config, nil, float32(tokens.RenewalsPerSecond), 2*tokens.RenewalsPerSecond)
	if err != nil {
		return tokens.Reviewers{}, err
	}
	return tokens.Reviewers{New: reviewer{reviews}, Renewals: reviewer{renewals}, Rights: reviewer{reviews}}, nil
}

// reviewer converts review.ErrBusy to tokens.ErrBusy.
type reviewer struct{ reviews *review.Reviews }

// User implements tokens.Authenticator.
func (r reviewer) User(ctx context.Context, token string, audiences ...string) (*authenticationv1.UserInfo, error) {
	user, err := r.reviews.User(ctx, token, audiences...)
	return user, asBusy(err)
}

// MayUse implements tokens.Authorizer.
func (r reviewer) MayUse(ctx context.Context, user *authenticationv1.UserInfo, what authorizationv1.ResourceAttributes) (bool, error) {
	may, err := r.reviews.MayUse(ctx, user, what)
	return may, asBusy(err)
}

func asBusy(err error) error {
	if errors.Is(err, review.ErrBusy) {
		return fmt.Errorf("%w: %w", tokens.ErrBusy, err)
	}
	return err
}

// ServeWith is Serve with a cluster that the caller provides.
func ServeWith(ctx context.Context, o Options, cluster Cluster, log *slog.Logger) error {
	registry := prometheus.NewRegistry()
	front, err := frontDoor(&o, &cluster, registry, log)
	if err != nil {
		return err
	}
	var isSynced atomic.Bool
	clients, err := openDoor(ctx, o.Address, o.MaxConnections, front)
	if err != nil {
		return err
	}
	isReady := func() bool { return isSynced.Load() && !clients.traffic.isDraining.Load() }
	probes := router.Server(probeHandler(isReady))
	scrapes, certificate, scrapesErr := metricsServer(&o, registry, front.Comparisons, cluster.Reviews, log)
	gateways, gatewaysErr := newGateways(&o, front, log)
	askers, err := newScalers(&o.Scaler, front, cluster.Directory, isSynced.Load, log)
	if err := errors.Join(scrapesErr, gatewaysErr, err); err != nil {
		return errors.Join(err, clients.door.Close())
	}
	clients.gateways, clients.scalers = gateways, askers
	// The watch must continue while the last requests finish, so it stops only after the servers.
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	group, groupCtx := errgroup.WithContext(watching)
	group.Go(func() error { return cluster.Directory.Run(groupCtx, gateways.onSync(&isSynced)) })
	if cluster.Waker != nil {
		group.Go(func() error { return cluster.Waker.Run(groupCtx) })
	}
	group.Go(func() error { return certificate(groupCtx) })
	group.Go(func() error { return gateways.serve(groupCtx) })
	group.Go(func() error { return askers.serve(groupCtx) })
	group.Go(func() error { return serve(groupCtx, clients.api, clients.door) })
	group.Go(func() error { return listen(groupCtx, scrapes, o.MetricsAddress, 100) })
	// Probes have a limit of their own: a client that uses up the connections for metrics must not cause a restart.
	group.Go(func() error { return listen(groupCtx, probes, o.ProbeAddress, 100) })
	group.Go(func() error {
		defer stop()
		select {
		case <-groupCtx.Done():
			return nil
		case <-ctx.Done():
		}
		log.Info("draining", "delay", o.DrainDelay.String())
		return errors.Join(clients.drain(groupCtx, o.DrainDelay, o.Settings.Deadline), scrapes.Close(), probes.Close())
	})
	err = group.Wait()
	stop()
	return err
}

// frontDoor returns the router and registers its metrics.
func frontDoor(o *Options, cluster *Cluster, registry *prometheus.Registry, log *slog.Logger) (*router.Router, error) {
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		router.NewConflicts(cluster.Directory))
	metrics, err := router.NewMetrics(registry)
	if err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	parts := router.Parts{
		Directory: cluster.Directory, Keys: cluster.Keys, Counters: &balance.Counters{}, Metrics: metrics,
		Log: log, Clock: clock.RealClock{}, Tokens: cluster.Tokens,
	}
	if cluster.Waker != nil {
		parts.Waker = cluster.Waker
	}
	return router.New(o.Settings, parts), nil
}

// wait returns after the delay, or when the context ends.
func wait(ctx context.Context, delay time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, delay)
	defer cancel()
	<-ctx.Done()
}

// listen binds the address and serves until the server is shut down.
func listen(ctx context.Context, server *http.Server, address string, connections int) error {
	listener, err := bind(ctx, address, connections)
	if err != nil {
		return err
	}
	return serve(ctx, server, listener)
}

// serve serves until the server is shut down or its listener closed. Requests on open connections continue after the
// latter.
func serve(ctx context.Context, server *http.Server, listener net.Listener) error {
	ended := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer ended()
	address := listener.Addr().String()
	if server.TLSConfig != nil {
		listener = tls.NewListener(listener, server.TLSConfig)
	}
	err := server.Serve(listener)
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serving on %s: %w", address, err)
}

// bind listens on an address, for a number of connections.
func bind(ctx context.Context, address string, connections int) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", address, err)
	}
	return netutil.LimitListener(listener, connections), nil
}

func probeHandler(isReady func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !isReady() {
			http.Error(w, "the router is starting or stopping", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
