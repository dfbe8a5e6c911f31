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
	"os"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/hub"
)

// Exit codes.
const (
	exitOK     = 0
	exitGaveUp = 1
	exitUsage  = 2
)

const (
	userAgent   = "modelberth-agent"
	reportEvery = 10 * time.Second
	usageText   = "usage: modelberth-agent fetch --repo ORG/NAME {--file PATH | --weights PATTERN} [flags]"
)

// Main is the whole program: it returns the exit code once ctx ends or the
// fetch has failed for good.
func Main(ctx context.Context, args []string, getenv func(string) string, stderr io.Writer) int {
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	if len(args) == 0 || args[0] != "fetch" {
		fmt.Fprintln(stderr, usageText)
		return exitUsage
	}
	settings, err := ParseFetch(args[1:], getenv, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		log.Error("arguments are wrong", "err", err)
		return exitUsage
	}
	if err := run(ctx, settings, log); err != nil {
		log.Error("giving up", "err", err)
		return exitGaveUp
	}
	return exitOK
}

// run serves the probes for as long as the process lives, and fetches.
func run(ctx context.Context, s Settings, log *slog.Logger) error {
	client, err := hub.New(hub.Options{
		Endpoint: s.Endpoint, Token: s.Token, UserAgent: userAgent, HTTP: hub.NewHTTPClient(s.Connections),
	})
	// A wrong endpoint may carry a password: it is named only once it is checked.
	where := source{endpoint: "the hub", repo: s.Repo, revision: s.Revision, dest: s.Dest}
	if err != nil {
		return giveUp(err, where, s.TerminationLog)
	}
	where.endpoint = client.Endpoint()
	root, err := os.OpenRoot(s.Dest)
	if err != nil {
		return giveUp(storageError(".", err), where, s.TerminationLog)
	}
	defer func() { _ = root.Close() }()
	fetcher := New(Config{
		Hub: client, Root: root, Clock: clock.RealClock{}, Log: log,
		Repo: s.Repo, Revision: s.Revision, Files: s.Files, Selection: s.Selection, SHA256: s.SHA256,
		Connections: s.Connections, GiveUpAfter: s.GiveUpAfter,
	})
	stop, err := serve(ctx, s.Listen, fetcher.Progress, log)
	if err != nil {
		return err
	}
	defer stop()
	if err := fetchReporting(ctx, fetcher, log); err != nil {
		if ctx.Err() != nil {
			log.Info("stopped before all files were there")
			return nil
		}
		return giveUp(err, where, s.TerminationLog)
	}
	log.Info("all files are in place")
	<-ctx.Done()
	return nil
}

// giveUp tells the kubelet and, through it, the user why.
func giveUp(err error, s source, path string) error {
	t := explain(err, s)
	gaveUp := fmt.Errorf("%s: %s", t.Reason, t.Message)
	return errors.Join(gaveUp, t.write(path))
}

func serve(ctx context.Context, address string, progress func() Progress, log *slog.Logger) (stop func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on --listen %q: %w", address, err)
	}
	server := newServer(progress)
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

// fetchReporting logs how far things are while they are under way.
func fetchReporting(ctx context.Context, f *Fetcher, log *slog.Logger) error {
	finished := make(chan struct{})
	var reporter sync.WaitGroup
	reporter.Go(func() {
		ticker := f.config.Clock.NewTicker(reportEvery)
		defer ticker.Stop()
		for {
			select {
			case <-finished:
				return
			case <-ticker.C():
				p := f.Progress()
				log.Info("fetching", "stage", p.Stage, "bytes", p.Bytes, "totalBytes", p.TotalBytes,
					"bytesPerSecond", p.BytesPerSecond, "etaSeconds", p.ETASeconds, "lastError", p.LastError)
			}
		}
	})
	defer reporter.Wait()
	defer close(finished)
	return f.Run(ctx)
}
