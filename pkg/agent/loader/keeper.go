// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/adapters"
)

const (
	// readEvery is the time between two looks at the file. Reading it costs nothing.
	readEvery = 200 * time.Millisecond
	// lookEvery is the time between two looks at an engine that serves its list.
	lookEvery = 2 * time.Second
	// unloadAfter is the time from an adapter's removal to its unloading. The controller removes an adapter only after the
	// status lacks it, and routers read the status within this time.
	unloadAfter = 5 * time.Second
	// retryAfter is the time from a failure to the next attempt.
	retryAfter = 15 * time.Second
	// keepFiles is the time from the unloading of an adapter to the deletion of its files. An engine may read them again
	// for requests that began before.
	keepFiles = 10 * time.Minute
)

// Config configures a Keeper.
type Config struct {
	// File has the list.
	File string
	// Root has a directory for each adapter, by its name.
	Root   string
	Engine Engine
	// Fetch fetches the files of an adapter into its directory. Its error is a sentence for users.
	Fetch func(ctx context.Context, a adapters.Adapter) error
	Clock clock.WithTicker
	Log   *slog.Logger
}

// Keeper makes the engine serve the listed adapters.
type Keeper struct {
	config Config

	// text is the content of the file at the last look.
	text string

	mu sync.Mutex
	// list is the last valid content of the file; isListed is false before the first one.
	list     adapters.List
	isListed bool
	// required are the adapters that the engine needs to be ready: all listed ones at its start, and later the loaded
	// ones.
	required map[string]bool
	isUp     bool
	fetched  map[adapters.Adapter]bool
	fetching map[string]context.CancelFunc
	running  sync.WaitGroup
	failures map[string]failure
	removed  map[string]time.Time
	unloaded map[string]time.Time
	looked   time.Time
	// lacking are the listed adapters that the engine did not serve at the last look. hasSurplus: it served others.
	lacking    []string
	hasSurplus bool
}

type failure struct {
	message string
	until   time.Time
}

// New returns a Keeper. Run starts it.
func New(config Config) *Keeper {
	return &Keeper{
		config: config, required: map[string]bool{}, fetched: map[adapters.Adapter]bool{}, fetching: map[string]context.CancelFunc{},
		failures: map[string]failure{}, removed: map[string]time.Time{}, unloaded: map[string]time.Time{},
	}
}

// Run keeps the adapters until the context ends.
func (k *Keeper) Run(ctx context.Context) {
	ticker := k.config.Clock.NewTicker(readEvery)
	defer ticker.Stop()
	defer k.running.Wait()
	for {
		k.step(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// step reads the list, begins to fetch what is missing, and brings the engine closer to the list.
func (k *Keeper) step(ctx context.Context) {
	isNew := k.read()
	if !k.hasList() {
		return
	}
	k.fetch(ctx)
	if !isNew && k.isSettled() {
		return
	}
	loaded, err := k.config.Engine.Loaded(ctx)
	k.see(loaded, err)
	if err != nil {
		return
	}
	k.unload(ctx, loaded)
	k.load(ctx, loaded)
	k.clean(loaded)
}

// read reads the file, and reports whether the list has changed. An unreadable list changes nothing.
func (k *Keeper) read() bool {
	text, err := os.ReadFile(k.config.File)
	if err != nil || string(text) == k.text || adapters.IsPending(strings.TrimSpace(string(text))) {
		return false
	}
	k.text = string(text)
	list, err := adapters.Decode(string(text))
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		if _, known := k.failures[""]; !known {
			k.failures[""] = failure{message: err.Error()}
			k.config.Log.Error("the list of adapters is unusable", "err", err)
		}
		return false
	}
	delete(k.failures, "")
	if k.isListed && slices.Equal(list.Adapters, k.list.Adapters) {
		k.list = list
		return false
	}
	k.config.Log.Info("the list of adapters has changed", "count", len(list.Adapters))
	k.list, k.isListed = list, true
	for name := range k.required {
		if adapters.Index(list.Adapters, name) < 0 {
			delete(k.required, name)
		}
	}
	for name := range k.failures {
		delete(k.failures, name) // the edit may have corrected it
	}
	return true
}

func (k *Keeper) hasList() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.isListed
}

// fetch fetches the files of each listed adapter that lacks them, and ends the fetches of others. A slow hub delays only
// its own adapter.
func (k *Keeper) fetch(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, cancel := range k.fetching {
		if adapters.Index(k.list.Adapters, name) < 0 {
			cancel()
		}
	}
	for _, a := range k.list.Adapters {
		if k.fetching[a.Name] != nil || k.fetched[a] || k.config.Clock.Now().Before(k.failures[a.Name].until) {
			continue
		}
		one, cancel := context.WithCancel(ctx)
		k.fetching[a.Name] = cancel
		k.running.Go(func() {
			defer cancel()
			err := k.config.Fetch(one, a)
			isEnded := one.Err() != nil
			k.mu.Lock()
			delete(k.fetching, a.Name)
			k.fetched[a] = err == nil
			k.mu.Unlock()
			if !isEnded {
				k.note(a.Name, err)
			}
		})
	}
}

// isSettled reports whether there is nothing to do: the engine was checked a moment ago, and each adapter that it
// lacked is being fetched or has just failed.
func (k *Keeper) isSettled() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	mustWait := func(name string) bool {
		return k.fetching[name] != nil || k.config.Clock.Now().Before(k.failures[name].until)
	}
	return k.isUp && !k.hasSurplus && k.config.Clock.Since(k.looked) < lookEvery &&
		!slices.ContainsFunc(k.lacking, func(name string) bool { return !mustWait(name) })
}

// see notes which adapters the engine serves. An engine that has just started needs all listed ones. An engine older
// than this process needs only its present adapters, because another one may be new and wrong.
func (k *Keeper) see(loaded map[string]string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looked = k.config.Clock.Now()
	if err != nil {
		k.isUp = k.isUp && !isDown(err)
		return
	}
	k.lacking, k.hasSurplus = nil, false
	for _, a := range k.list.Adapters {
		if !k.isAt(loaded, a) {
			k.lacking = append(k.lacking, a.Name)
		}
	}
	for name := range loaded {
		k.hasSurplus = k.hasSurplus || adapters.Index(k.list.Adapters, name) < 0
	}
	if !k.isUp {
		k.isUp = true
		hasAny := slices.ContainsFunc(k.list.Adapters, func(a adapters.Adapter) bool { return k.isAt(loaded, a) })
		for _, a := range k.list.Adapters {
			if !hasAny || k.isAt(loaded, a) {
				k.required[a.Name] = true
			}
		}
	}
}

// isDown reports whether the engine does not listen. A busy one may miss a deadline, and is still the same engine.
func isDown(err error) bool {
	failed, is := errors.AsType[*net.OpError](err)
	return is && failed.Op == "dial"
}

func (k *Keeper) dir(a adapters.Adapter) string { return path.Join(k.config.Root, a.Name, a.Path) }

func (k *Keeper) isAt(loaded map[string]string, a adapters.Adapter) bool {
	return loaded[a.Name] == k.dir(a)
}

// unload unloads adapters some time after their removal from the list.
func (k *Keeper) unload(ctx context.Context, loaded map[string]string) {
	now := k.config.Clock.Now()
	k.mu.Lock()
	list := k.list
	for name := range k.removed {
		if _, isLoaded := loaded[name]; !isLoaded || adapters.Index(list.Adapters, name) >= 0 {
			delete(k.removed, name)
		}
	}
	var due []string
	for name := range loaded {
		if adapters.Index(list.Adapters, name) >= 0 {
			continue
		}
		since, known := k.removed[name]
		if !known {
			k.removed[name], since = now, now
		}
		if now.Sub(since) >= unloadAfter {
			due = append(due, name)
		}
	}
	k.mu.Unlock()
	slices.Sort(due)
	for _, name := range due {
		err := k.config.Engine.Unload(ctx, name)
		if err != nil {
			k.config.Log.Warn("an adapter could not be unloaded", "adapter", name, "err", err)
			k.mu.Lock()
			k.removed[name] = now.Add(retryAfter - unloadAfter)
			k.mu.Unlock()
			continue
		}
		k.config.Log.Info("an adapter is unloaded", "adapter", name)
		k.mu.Lock()
		k.unloaded[name] = now
		k.mu.Unlock()
	}
}

// clean deletes the files of adapters that are no longer needed.
func (k *Keeper) clean(loaded map[string]string) {
	entries, err := os.ReadDir(k.config.Root)
	if err != nil {
		return // without adapters, there is no directory
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, entry := range entries {
		name := entry.Name()
		_, isLoaded := loaded[name]
		isNeeded := isLoaded || adapters.Index(k.list.Adapters, name) >= 0 || k.fetching[name] != nil
		if isNeeded || k.config.Clock.Since(k.unloaded[name]) < keepFiles {
			continue
		}
		if err := os.RemoveAll(path.Join(k.config.Root, name)); err != nil {
			k.config.Log.Warn("the files of an adapter could not be deleted", "adapter", name, "err", err)
		}
		delete(k.unloaded, name)
		maps.DeleteFunc(k.fetched, func(a adapters.Adapter, _ bool) bool { return a.Name == name })
	}
}

// load loads the fetched adapters that the engine lacks.
func (k *Keeper) load(ctx context.Context, loaded map[string]string) {
	for _, a := range k.toLoad(loaded) {
		err := k.config.Engine.Load(ctx, a.Name, k.dir(a))
		if ctx.Err() != nil {
			return
		}
		k.note(a.Name, err)
		if err == nil {
			k.config.Log.Info("an adapter is loaded", "adapter", a.Name)
			k.require(a.Name)
		}
	}
	for _, a := range k.listed() {
		if k.isAt(loaded, a) {
			k.require(a.Name)
		}
	}
}

func (k *Keeper) toLoad(loaded map[string]string) []adapters.Adapter {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []adapters.Adapter
	for _, a := range k.list.Adapters {
		if _, isLoaded := loaded[a.Name]; !isLoaded && k.fetched[a] && !k.config.Clock.Now().Before(k.failures[a.Name].until) {
			out = append(out, a)
		}
	}
	return out
}

func (k *Keeper) listed() []adapters.Adapter {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.list.Adapters
}

func (k *Keeper) require(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if adapters.Index(k.list.Adapters, name) >= 0 {
		k.required[name] = true
	}
}

// note stores the result of an attempt.
func (k *Keeper) note(name string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		delete(k.failures, name)
		return
	}
	k.config.Log.Warn("an adapter is not served", "adapter", name, "err", err)
	k.failures[name] = failure{message: err.Error(), until: k.config.Clock.Now().Add(retryAfter)}
}

// IsComplete reports whether the engine serves every required adapter. It queries the engine, because the engine may
// have restarted a moment ago.
func (k *Keeper) IsComplete(ctx context.Context) bool {
	if !k.hasList() {
		return false
	}
	loaded, err := k.config.Engine.Loaded(ctx)
	if err != nil {
		return false
	}
	k.see(loaded, nil)
	k.mu.Lock()
	defer k.mu.Unlock()
	return !slices.ContainsFunc(k.list.Adapters, func(a adapters.Adapter) bool { return k.required[a.Name] && !k.isAt(loaded, a) })
}

// State returns which adapters the engine serves now, and why it does not serve the others.
func (k *Keeper) State(ctx context.Context) adapters.State {
	loaded, err := k.config.Engine.Loaded(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	out := adapters.State{Loaded: []string{}, Failed: map[string]string{}}
	for _, a := range k.list.Adapters {
		switch failed, isFailed := k.failures[a.Name]; {
		case err == nil && k.isAt(loaded, a):
			out.Loaded = append(out.Loaded, a.Name)
		case isFailed:
			out.Failed[a.Name] = failed.message
		}
	}
	slices.Sort(out.Loaded)
	return out
}
