// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/agent/drain"
	"github.com/modelberth/modelberth/pkg/agent/fetch"
	"github.com/modelberth/modelberth/pkg/agent/loader"
	"github.com/modelberth/modelberth/pkg/agent/members"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

const (
	userAgent   = "modelberth-agent"
	reportEvery = 10 * time.Second
	usageText   = "usage: modelberth-agent [flags] [{fetch {--repo ORG/NAME | --image NAME} | verify} {--file PATH | --weights PATTERN} [flags]]...\n" +
		"       modelberth-agent [flags] resolve {--repo ORG/NAME | --image NAME} [flags]"
)

// Main is the whole program. It returns the exit code once ctx ends or an error is permanent.
func Main(ctx context.Context, args []string, getenv func(string) string, stderr io.Writer) int {
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	settings, err := Parse(args, getenv, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		log.Error("invalid arguments", "err", err)
		return exitUsage
	}
	do := run
	if settings.resolves() {
		do = resolve
	}
	if err := do(ctx, settings, log); err != nil {
		log.Error("giving up", "err", err)
		return exitFailed
	}
	return exitOK
}

// run fetches the files and watches the group. It serves HTTP for as long as the process lives.
func run(ctx context.Context, s Settings, log *slog.Logger) error {
	cache, err := openCache(s)
	if err != nil {
		return terminate(err, s.TerminationLog)
	}
	if cache != nil {
		defer func() { _ = cache.Close() }()
	}
	tasks, err := newTasks(s, cache, log)
	defer tasks.close()
	if err != nil {
		return terminate(err, s.TerminationLog)
	}
	asker := members.NewClient()
	drainer := newDrain(s.Drain, asker, log)
	self := func() members.Identity {
		return members.Identity{ID: s.Group.ID, Group: s.Group.Number, Draining: drainer.IsRunning()}
	}
	stop, err := serve(ctx, s.Listen, newServer(routes{progress: tasks.progress, self: self, drain: drainer}), log)
	if err != nil {
		return err
	}
	defer stop()
	// After the peers' port: an answer of the probes' port proves that it is open, too.
	keep, stopMore, err := serveMore(ctx, s, self, cache, log)
	defer stopMore()
	if err != nil {
		return err
	}
	g, running := errgroup.WithContext(ctx)
	g.Go(func() error { return keep(running) })
	g.Go(func() error { return fetchAll(running, tasks, log) })
	g.Go(func() error {
		return members.Watch(running, members.Config{
			Self: self(), Peers: s.Group.Peers, Ask: asker.Ask, Log: log, IsEnding: drainer.IsRunning,
		})
	})
	err = g.Wait()
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return terminate(err, s.TerminationLog)
	}
	<-ctx.Done()
	return nil
}

// serveMore opens the ports that not every pod has: one for probes of a group, and the guard of an engine whose adapters
// change. keep keeps these adapters until its context ends. stop closes the ports, even after an error.
func serveMore(
	ctx context.Context, s Settings, self func() members.Identity, cache *Cache, log *slog.Logger,
) (keep func(context.Context) error, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, each := range slices.Backward(stops) {
			each()
		}
	}
	keep = func(context.Context) error { return nil }
	open := func(address string, server *http.Server) error {
		one, err := serve(ctx, address, server, log)
		if err == nil {
			stops = append(stops, one)
		}
		return err
	}
	if s.Group.ProbeListen != "" {
		if err := open(s.Group.ProbeListen, newProbeServer(self)); err != nil {
			return keep, stop, err
		}
	}
	if s.Live.File == "" {
		return keep, stop, nil
	}
	keeper, guard, err := newKeeper(s, cache, log)
	if err != nil {
		return keep, stop, err
	}
	keep = func(ctx context.Context) error {
		keeper.Run(ctx)
		return nil
	}
	return keep, stop, open(s.Live.Guard, loader.NewServer(guard))
}

// fetchAll fetches all files, and logs the progress.
func fetchAll(ctx context.Context, tasks taskList, log *slog.Logger) error {
	err := fetchReporting(ctx, tasks, log)
	if ctx.Err() != nil {
		log.Info("stopped before all files were fetched")
	}
	if err != nil {
		return err
	}
	log.Info("all files are in place")
	return tasks.settle(ctx)
}

func fetchReporting(ctx context.Context, tasks taskList, log *slog.Logger) error {
	finished := make(chan struct{})
	var reporter sync.WaitGroup
	reporter.Go(func() { report(finished, tasks.progress, log) })
	defer reporter.Wait()
	defer close(finished)
	return tasks.run(ctx)
}

func report(finished <-chan struct{}, progress func() fetch.Progress, log *slog.Logger) {
	ticker := clock.RealClock{}.NewTicker(reportEvery)
	defer ticker.Stop()
	for {
		select {
		case <-finished:
			return
		case <-ticker.C():
			p := progress()
			log.Info("fetching", "stage", p.Stage, "bytes", p.Bytes, "totalBytes", p.TotalBytes,
				"bytesPerSecond", p.BytesPerSecond, "etaSeconds", p.ETASeconds, "lastError", p.LastError)
		}
	}
}

// newDrain returns a drain that waits for the engine of this pod or, if another pod leads, for the leader's drain.
func newDrain(d Drain, asker *members.Client, log *slog.Logger) *drain.Drain {
	c := drain.Config{Settle: d.Settle, Timeout: d.Timeout, Clock: clock.RealClock{}, Log: log}
	switch {
	case d.Metrics != "":
		c.IsBusy = drain.Gauges(&http.Client{Transport: &http.Transport{}}, drain.Source{URL: d.Metrics, Key: d.Key, Gauges: d.Busy})
	case d.Leader != "":
		c.IsBusy = drain.Following(func(ctx context.Context) (bool, error) {
			leader, err := asker.Ask(ctx, d.Leader)
			return leader.Draining, err
		})
	}
	return drain.New(c)
}

func serve(ctx context.Context, address string, server *http.Server, log *slog.Logger) (stop func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on %q: %w", address, err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("probe server ended", "err", err)
		}
	})
	log.Info("serving probes", "address", listener.Addr().String())
	return func() {
		if err := server.Close(); err != nil {
			log.Warn("closing the probe server", "err", err)
		}
		done.Wait()
	}, nil
}
