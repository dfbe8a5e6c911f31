// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package run wires the front door: flags, the cluster, the servers and an orderly end.
//
// It decides nothing about requests.
package run

import (
	"context"
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
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/modelberth/modelberth/pkg/router"
	"github.com/modelberth/modelberth/pkg/router/balance"
	"github.com/modelberth/modelberth/pkg/router/discovery"
	"github.com/modelberth/modelberth/pkg/router/limit"
	"github.com/modelberth/modelberth/pkg/router/wake"
)

// Options of the command.
type Options struct {
	Address, MetricsAddress, ProbeAddress string
	Scope                                 discovery.Scope
	Settings                              router.Settings
	Routers                               int
	MaxConnections                        int
	MemoryLimit                           int64
	DrainDelay                            time.Duration
}

// Bind adds the flags.
func (o *Options) Bind(flags *flag.FlagSet) {
	o.Settings = router.Defaults()
	flags.StringVar(&o.Address, "bind-address", ":8000", "address of the API")
	flags.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8080", "address of the metrics")
	flags.StringVar(&o.ProbeAddress, "health-probe-bind-address", ":8081", "address of the probes")
	flags.Func("watch-namespace", "namespace with models; repeatable; default: all", func(name string) error {
		o.Scope.Namespaces = append(o.Scope.Namespaces, name)
		return nil
	})
	flags.StringVar(&o.Scope.KeyNamespace, "key-namespace", "", "namespace of the Secrets with keys, which have the label "+
		discovery.LabelKey+"=true")
	flags.BoolVar(&o.Settings.IsOpen, "open", false, "admit clients without a key to all models")
	flags.IntVar(&o.Routers, "routers", 1, "number of routers; each enforces its share of a key's limits")
	flags.Int64Var(&o.Settings.MaxBody, "max-body-bytes", o.Settings.MaxBody, "largest body of a request")
	flags.Int64Var(&o.Settings.BodyBudget, "body-memory-bytes", o.Settings.BodyBudget, "memory for the bodies of all requests, with the edited copies")
	flags.DurationVar(&o.Settings.Deadline, "request-deadline", o.Settings.Deadline, "longest time of a request with its answer")
	flags.IntVar(&o.Settings.Hold.Requests, "hold-requests", 0, "requests that may wait for the first replica of a set, and wake it; "+
		"a set may have half of them; 0: none waits")
	flags.Int64Var(&o.Settings.Hold.Bytes, "hold-bytes", o.Settings.Hold.Bytes,
		"bytes of the bodies of these requests; a set may have half")
	flags.DurationVar(&o.Settings.Hold.Time, "hold-time", o.Settings.Hold.Time, "longest time that a request waits")
	flags.IntVar(&o.MaxConnections, "max-connections", 10000, "most connections of clients at once")
	flags.Int64Var(&o.MemoryLimit, "memory-limit-bytes", 0, "memory of the container; 0: unknown")
	flags.DurationVar(&o.DrainDelay, "drain-delay", 5*time.Second, "time from the end of readiness to the end of new connections")
}

// Validate reports settings that cannot work.
func (o *Options) Validate() error {
	hold := o.Settings.Hold
	switch {
	case o.Settings.IsOpen == (o.Scope.KeyNamespace != ""):
		return errors.New("set either --key-namespace or --open")
	case o.Routers < 1, o.MaxConnections < 1, o.Settings.MaxBody < 1, o.Settings.Deadline <= 0:
		return errors.New("--routers, --max-connections, --max-body-bytes and --request-deadline must be above 0")
	case hold.Requests < 0:
		return errors.New("--hold-requests must not be below 0")
	case hold.Requests > 0 && (hold.Bytes < 1 || hold.Time <= 0 || hold.Time >= o.Settings.Deadline):
		return errors.New("--hold-bytes must be above 0, and --hold-time between 0 and --request-deadline")
	case o.Settings.BodyBudget/6 < o.Settings.MaxBody: // a key has half: a body, the buffer in which it grew, the edited copy
		return errors.New("--body-memory-bytes must be at least six times --max-body-bytes")
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

// limitMemory has the garbage collector keep the process within nine tenths of the container's memory. Large bodies
// would double the heap between two collections.
func (o *Options) limitMemory() {
	if o.MemoryLimit > 0 {
		debug.SetMemoryLimit(o.MemoryLimit / 10 * 9)
	}
}

// Serve runs the router until the context ends and its requests are answered.
func Serve(ctx context.Context, config *rest.Config, o Options, log *slog.Logger) error {
	keys := limit.NewKeys(o.Routers)
	found, err := discovery.New(config, o.Scope, keys, log)
	if err != nil {
		return err
	}
	cluster := Cluster{Directory: found, Keys: keys}
	if o.Settings.Hold.Requests > 0 {
		if cluster.Waker, err = wake.New(config, log, clock.RealClock{}); err != nil {
			return err
		}
	}
	return ServeWith(ctx, o, cluster, log)
}

// Directory has the models, and watches until the context ends.
type Directory interface {
	router.Directory
	Run(ctx context.Context, ready func()) error
}

// Cluster is what the router knows and may change.
type Cluster struct {
	Directory Directory
	Keys      *limit.Keys
	// Waker is nil if no request waits for a replica.
	Waker *wake.Waker
}

// ServeWith is Serve with a cluster of the caller.
func ServeWith(ctx context.Context, o Options, cluster Cluster, log *slog.Logger) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics, err := router.NewMetrics(registry)
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	parts := router.Parts{
		Directory: cluster.Directory, Keys: cluster.Keys, Counters: &balance.Counters{}, Metrics: metrics,
		Log: log, Clock: clock.RealClock{},
	}
	if cluster.Waker != nil {
		parts.Waker = cluster.Waker
	}
	front := router.New(o.Settings, parts)
	var isSynced, isDraining atomic.Bool
	isReady := func() bool { return isSynced.Load() && !isDraining.Load() }
	api, scrapes := router.Server(closing(front, &isDraining)), router.Server(metricsHandler(registry))
	probes := router.Server(probeHandler(isReady))
	// The watch goes on while requests end, so it stops with the servers.
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	group, groupCtx := errgroup.WithContext(watching)
	group.Go(func() error { return cluster.Directory.Run(groupCtx, func() { isSynced.Store(true) }) })
	if cluster.Waker != nil {
		group.Go(func() error { return cluster.Waker.Run(groupCtx) })
	}
	group.Go(func() error { return listen(groupCtx, api, o.Address, o.MaxConnections) })
	group.Go(func() error { return listen(groupCtx, scrapes, o.MetricsAddress, 100) })
	// Whoever fills the connections for metrics must not end the router.
	group.Go(func() error { return listen(groupCtx, probes, o.ProbeAddress, 100) })
	group.Go(func() error {
		defer stop()
		select {
		case <-groupCtx.Done():
			return nil
		case <-ctx.Done():
		}
		isDraining.Store(true)
		log.Info("draining", "delay", o.DrainDelay.String())
		wait(groupCtx, o.DrainDelay)
		ending, cancel := context.WithTimeout(groupCtx, o.Settings.Deadline)
		defer cancel()
		return errors.Join(api.Shutdown(ending), scrapes.Close(), probes.Close())
	})
	err = group.Wait()
	stop()
	return err
}

// closing has clients leave their connections while the router drains. The end of an idle connection could meet the next
// request, which the client may not repeat.
func closing(handler http.Handler, isDraining *atomic.Bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if isDraining.Load() {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, req)
	})
}

// wait returns after a time, or when the context ends.
func wait(ctx context.Context, delay time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, delay)
	defer cancel()
	<-ctx.Done()
}

// listen serves until the server is shut down.
func listen(ctx context.Context, server *http.Server, address string, connections int) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", address, err)
	}
	ended := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer ended()
	if err := server.Serve(netutil.LimitListener(listener, connections)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving on %s: %w", address, err)
	}
	return nil
}

func metricsHandler(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

func probeHandler(isReady func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !isReady() {
			http.Error(w, "the router reads the cluster, or ends", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
