// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"os"

	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/hub"
)

// task brings the files of one target into place.
type task struct {
	name    string
	source  source
	fetcher *Fetcher
	root    *os.Root
}

// taskList is worked off in order: each task can use all connections, and the first is what the engine needs most.
type taskList []task

// sourceError is an error of a target, with what a sentence about it must name.
type sourceError struct {
	source source
	err    error
}

func (e *sourceError) Error() string { return e.source.String() + ": " + e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

func newTasks(s Settings, log *slog.Logger) (taskList, error) {
	if len(s.Targets) == 0 {
		return nil, nil
	}
	client, err := hub.New(hub.Options{
		Endpoint: s.Endpoint, Token: s.Token, UserAgent: userAgent, HTTP: hub.NewHTTPClient(s.Connections),
	})
	if err != nil {
		// A wrong endpoint may carry a password: it is named only once it is checked.
		return nil, &sourceError{s.Targets[0].source("the hub"), err}
	}
	var tasks taskList
	for _, t := range s.Targets {
		where := t.source(client.Endpoint())
		root, err := openDest(t.Dest)
		if err != nil {
			return tasks, &sourceError{where, storageError(".", err)}
		}
		tasks = append(tasks, task{name: t.Name, source: where, root: root, fetcher: New(Config{
			Hub: client, Root: root, Clock: clock.RealClock{}, Log: log.With("for", t.Name),
			Repo: t.Repo, Revision: t.Revision, Files: t.Files, Selection: t.Selection, SHA256: t.SHA256,
			Connections: s.Connections, GiveUpAfter: s.GiveUpAfter,
		})})
	}
	return tasks, nil
}

func openDest(dir string) (*os.Root, error) {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

func (t Target) source(endpoint string) source {
	return source{endpoint: endpoint, repo: t.Repo, revision: t.Revision, dest: t.Dest}
}

func (l taskList) run(ctx context.Context) error {
	for _, t := range l {
		if err := t.fetcher.Run(ctx); err != nil {
			return &sourceError{t.source, err}
		}
	}
	return nil
}

// progress of all. The files of the first target stand under their paths, those of others under its name.
func (l taskList) progress() Progress {
	all := Progress{Ready: true, Stage: StageReady, Files: []FileProgress{}}
	for i, t := range l {
		p := t.fetcher.Progress()
		if i > 0 {
			for j := range p.Files {
				p.Files[j].Path = t.name + "/" + p.Files[j].Path
			}
		}
		all = all.and(p)
	}
	return all
}

func (l taskList) close() {
	for _, t := range l {
		_ = t.root.Close()
	}
}
