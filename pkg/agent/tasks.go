// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/agent/fetch"
	"github.com/modelberth/modelberth/pkg/agent/oci"
	"github.com/modelberth/modelberth/pkg/hub"
)

// work fetches the files of one target, or checks that they are there.
type work interface {
	Run(ctx context.Context) error
	Settle(ctx context.Context) error
	Progress() fetch.Progress
}

type task struct {
	work
	name   string
	source source
	// root is nil without files.
	root *os.Root
}

// taskList is processed in order, because each task can use all connections, and the engine needs the first most.
type taskList []task

// openCache opens the cache; nil if the settings have none.
func openCache(s Settings) (*Cache, error) {
	if s.Cache == "" {
		return nil, nil
	}
	cache, err := OpenCache(s.Cache, s.CacheLimit, clock.RealClock{})
	if err == nil {
		cache.verifiesWhole = s.CacheVerifyWhole
	}
	if err == nil && s.CacheDirectory != "" {
		err = cache.makeDirectory(s.CacheDirectory)
	}
	if err != nil {
		return nil, &sourceError{source{endpoint: s.Cache, dest: s.Cache}, storageError(".", err)}
	}
	return cache, nil
}

// newTasks returns the created tasks even with an error: close them.
func newTasks(s Settings, cache *Cache, log *slog.Logger) (taskList, error) {
	var tasks taskList
	for _, t := range s.Targets {
		made, err := newTask(s, t, cache, log.With("for", t.Name))
		if err != nil {
			return tasks, err
		}
		tasks = append(tasks, made)
	}
	return append(tasks, task{work: newGate(s, log)}), nil
}

func newTask(s Settings, t Target, cache *Cache, log *slog.Logger) (task, error) {
	made := task{name: t.Name, source: source{endpoint: t.Dest, dest: cmp.Or(t.Place, t.Dest)}}
	if t.IsThere {
		root, err := os.OpenRoot(t.Dest)
		if err != nil {
			return task{}, &sourceError{made.source, storageError(".", err)}
		}
		made.root, made.work = root, newVerifier(t, root, clock.RealClock{}, log)
		return made, nil
	}
	// A wrong endpoint may contain a password, so messages name it only after its check.
	made.source = t.source("the hub")
	from, where, err := t.open(s)
	if err != nil {
		return task{}, &sourceError{made.source, err}
	}
	made.source = where
	if made.root, err = openDest(t.Dest); err != nil {
		return task{}, &sourceError{made.source, storageError(".", err)}
	}
	fetcher := New(Config{
		Hub: from, Root: made.root, Clock: clock.RealClock{}, Log: log,
		Repo: where.repo, Revision: where.revision, Files: t.files(), Selection: t.selection(), SHA256: t.SHA256,
		Cache: cache, Connections: s.Connections, GiveUpAfter: s.GiveUpAfter, Most: t.Most,
	})
	made.work = fetcher
	if t.Image != "" {
		made.work = &unpacking{Fetcher: fetcher, dir: t.Dest, wanted: t, limits: s.Unpack}
	}
	return made, nil
}

// open returns the source of the files.
func (t Target) open(s Settings) (Hub, source, error) {
	client, err := newHTTPClient(s)
	if err != nil {
		return nil, source{}, err
	}
	if t.Image != "" {
		from, err := oci.New(t.Image, oci.Options{
			HTTP: client, Keychain: authn.DefaultKeychain, Clock: clock.RealClock{}, UserAgent: userAgent,
		})
		if err != nil {
			return nil, source{}, err
		}
		return from, source{
			endpoint: from.Registry(), repo: from.Repository(), revision: from.Revision(), dest: t.Dest, isImage: true,
		}, nil
	}
	from, err := hub.New(hub.Options{Endpoint: s.Endpoint, Token: s.Token, UserAgent: userAgent, HTTP: client})
	if err != nil {
		return nil, source{}, err
	}
	return from, t.source(from.Endpoint()), nil
}

func newHTTPClient(s Settings) (*http.Client, error) {
	client := hub.NewHTTPClient(s.Connections)
	if s.CAFile == "" {
		return client, nil
	}
	pem, err := os.ReadFile(s.CAFile)
	if err == nil {
		err = hub.TrustAlso(client, pem)
	}
	if err != nil {
		return nil, &AuthorityError{File: s.CAFile, Err: err}
	}
	return client, nil
}

// AuthorityError is returned if the administrator's CA certificates are unusable.
type AuthorityError struct {
	File string
	Err  error
}

func (e *AuthorityError) Error() string { return fmt.Sprintf("certificates in %q: %v", e.File, e.Err) }
func (e *AuthorityError) Unwrap() error { return e.Err }

func (t Target) source(endpoint string) source {
	return source{endpoint: endpoint, repo: cmp.Or(t.Repo, t.Image), revision: t.Revision, dest: t.Dest}
}

func (l taskList) run(ctx context.Context) error {
	for _, t := range l {
		if err := t.Run(ctx); err != nil {
			return &sourceError{t.source, err}
		}
	}
	return nil
}

func (l taskList) settle(ctx context.Context) error {
	for _, t := range l {
		if err := t.Settle(ctx); err != nil {
			return &sourceError{t.source, err}
		}
	}
	return nil
}

// progress returns the progress of all tasks. Files of the first target have their plain paths. Paths of the other
// targets start with the target's name.
func (l taskList) progress() fetch.Progress {
	all := fetch.Progress{Ready: true, Stage: fetch.StageReady, Files: []fetch.FileProgress{}}
	for i, t := range l {
		p := t.Progress()
		if i > 0 {
			for j := range p.Files {
				p.Files[j].Path = t.name + "/" + p.Files[j].Path
			}
		}
		all = all.And(p)
	}
	return all
}

func (l taskList) close() {
	for _, t := range l {
		if t.root != nil {
			_ = t.root.Close()
		}
	}
}
