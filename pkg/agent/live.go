// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"strings"

	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/adapters"
	"github.com/modelberth/modelberth/pkg/agent/loader"
	"github.com/modelberth/modelberth/pkg/hub"
)

// Live has the settings for adapters that change while the engine runs.
type Live struct {
	// File has the list of adapters; empty if the adapters never change.
	File string
	// Root has a directory for each adapter.
	Root string
	// Engine is the loopback address of the engine. Guard is the address for clients, and HealthPath the path of probes.
	Engine, Guard, HealthPath string
	// Selection selects the engine's files of a repository, below the adapter's path.
	Selection Selection
	// Limit is the size of all adapters together; 0 means no limit.
	Limit int64
}

const defaultHealth = "/health"

func (l *Live) define(flags *flag.FlagSet) {
	flags.StringVar(&l.File, "adapters", "", "`FILE` with the list of adapters, which the controller changes while the engine runs")
	flags.StringVar(&l.Root, "adapters-dest", "", "directory for the files of the adapters")
	flags.StringVar(&l.Engine, "adapters-engine", "", "`URL` of vLLM at a loopback address")
	flags.StringVar(&l.Guard, "adapters-guard", "", "address for clients: requests reach the engine, unless they would change its adapters")
	flags.StringVar(&l.HealthPath, "adapters-health", "", "path of the engine's health check; default: "+defaultHealth)
	for name, into := range map[string]*[]string{"adapters-weights": &l.Selection.Weights, "adapters-include": &l.Selection.Include} {
		flags.Func(name, "`PATTERN` of files in an adapter's repository, as --weights and --include; repeatable", appendTo(into))
	}
	flags.Func("adapters-limit-gib", "size limit of all adapters of --adapters together, `N` GiB", func(v string) (err error) {
		l.Limit, err = parseGiB(v)
		return err
	})
}

func (l *Live) check() error {
	if l.File == "" {
		return nil
	}
	engine, err := url.Parse(l.Engine)
	switch {
	case err != nil || engine.Host == "" || engine.Scheme != "http":
		return fmt.Errorf("--adapters-engine is %q: give a URL such as http://127.0.0.1:5001", l.Engine)
	case !filepath.IsAbs(l.Root):
		return fmt.Errorf("--adapters-dest is %q: give an absolute path", l.Root)
	case l.Guard == "":
		return errors.New("--adapters-guard is missing: name the address for clients, because the engine's routes for adapters must not be open")
	case len(l.Selection.Weights) == 0:
		return errors.New("--adapters-weights is missing: give a pattern such as *.safetensors")
	}
	return nil
}

// newKeeper returns the keeper of the adapters, and the handler for clients.
func newKeeper(s Settings, cache *Cache, log *slog.Logger) (*loader.Keeper, http.Handler, error) {
	engine, err := url.Parse(s.Live.Engine)
	if err != nil {
		return nil, nil, fmt.Errorf("parsing --adapters-engine: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	keeper := loader.New(loader.Config{
		File: s.Live.File, Root: s.Live.Root, Clock: clock.RealClock{}, Log: log,
		Engine: loader.VLLM{URL: strings.TrimSuffix(s.Live.Engine, "/"), Key: s.Drain.Key, Client: client},
		Fetch: func(ctx context.Context, a adapters.Adapter) error {
			return fetchAdapter(ctx, s, a, cache, log.With("for", a.Name))
		},
	})
	return keeper, loader.Guard(engine, cmp.Or(s.Live.HealthPath, defaultHealth), s.Drain.Key, keeper), nil
}

// fetchAdapter fetches the files of an adapter as at a start. Its error is a sentence for users.
func fetchAdapter(ctx context.Context, s Settings, a adapters.Adapter, cache *Cache, log *slog.Logger) error {
	target, err := s.Live.target(a)
	if err != nil {
		return err
	}
	if s.Live.Limit > 0 {
		taken, err := sizeOf(s.Live.Root, a.Name)
		if err != nil {
			return err
		}
		target.Most = max(1, s.Live.Limit-taken)
		s.Unpack.Bytes = min(s.Unpack.Bytes, target.Most)
	}
	made, err := newTask(s, target, cache, log)
	if made.root != nil {
		defer func() { _ = made.root.Close() }()
	}
	if err == nil {
		err = made.Run(ctx)
	}
	if err == nil {
		err = made.Settle(ctx)
	}
	if err == nil {
		return nil
	}
	if of := new(sourceError); !errors.As(err, &of) {
		err = &sourceError{made.source, err}
	}
	return errors.New(explain(err).Message)
}

// target returns the files to fetch.
func (l *Live) target(a adapters.Adapter) (Target, error) {
	t := Target{
		Name: a.Name, Dest: path.Join(l.Root, a.Name), Revision: defaultRevision,
		SHA256: map[string]hub.Digest{}, Sizes: map[string]int64{}, Image: a.Image,
	}
	if a.Repository != "" {
		repo, revision, isGiven := strings.Cut(a.Repository, "@")
		if t.Repo = repo; isGiven {
			t.Revision = revision
		}
		for _, pattern := range l.Selection.Weights {
			t.Selection.Weights = append(t.Selection.Weights, path.Join(literalPattern(a.Path), pattern))
		}
		for _, pattern := range l.Selection.Include {
			t.Selection.Include = append(t.Selection.Include, path.Join(literalPattern(a.Path), pattern))
		}
	}
	err := t.check()
	return t, err
}

// sizeOf returns the size of the files in a directory, without one of its entries.
func sizeOf(dir, without string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(at string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if at == filepath.Join(dir, without) {
			return fs.SkipDir
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			sum += info.Size()
		}
		if errors.Is(err, fs.ErrNotExist) { // a fetch has just renamed it
			return nil
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measuring the adapters: %w", err)
	}
	return sum, nil
}
