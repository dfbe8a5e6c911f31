// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process keeps programs running. It starts them with their output in a log file, and restarts them with a
// growing pause when they end. It records their identity, so a later command finds them and no other process. It must
// not know the programs' purpose.
package process

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// Command is a program to keep running.
type Command struct {
	Name string
	Path string
	Args []string
	Env  []string
	Dir  string
	// Log is the file for its output.
	Log string
}

// Starter starts a process and returns how to wait for its end. It exists
// because the first process of a namespace has to wait for all its children in
// one place, and because a child's namespaces follow from the thread it is
// started on.
type Starter interface {
	Start(cmd *exec.Cmd) (wait func() error, err error)
}

// State is a kept program's state.
type State struct {
	Name     string    `json:"name"`
	Running  bool      `json:"running"`
	PID      int       `json:"pid,omitempty"`
	Since    time.Time `json:"since"`
	Restarts int       `json:"restarts"`
	// LastExit reports how it ended the last time it did.
	LastExit string `json:"lastExit,omitempty"`
}

// Keeper keeps one program running.
type Keeper struct {
	command Command
	starter Starter
	log     *slog.Logger

	mu    sync.Mutex
	state State
}

// Pauses before the restart of an ended program.
const (
	firstPause = 500 * time.Millisecond
	maxPause   = 10 * time.Second
	// settled is how long a program must have run for its next pause to be short again.
	settled = 30 * time.Second
)

// NewKeeper returns a keeper for the command; Run makes it work.
func NewKeeper(command Command, starter Starter, log *slog.Logger) *Keeper {
	return &Keeper{command: command, starter: starter, log: log.With("component", command.Name), state: State{Name: command.Name}}
}

// State returns the program's current state.
func (k *Keeper) State() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// Run keeps the program running until ctx ends, then kills it.
func (k *Keeper) Run(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		started := time.Now()
		err := k.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) > settled {
			pause = firstPause
		}
		k.log.Info("program ended and is started again", "exit", fmt.Sprint(err), "pause", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

// once runs the program one time, to its end or the end of ctx.
func (k *Keeper) once(ctx context.Context) error {
	output, err := openLog(k.command.Log)
	if err != nil {
		return err
	}
	defer func() { _ = output.Close() }()
	cmd := exec.Command(k.command.Path, k.command.Args...)
	cmd.Args[0] = k.command.Name
	cmd.Env, cmd.Dir = k.command.Env, k.command.Dir
	cmd.Stdout, cmd.Stderr = output, output
	wait, err := k.starter.Start(cmd)
	if err != nil {
		err = fmt.Errorf("starting %s: %w", k.command.Name, err)
		k.ended(err)
		return err
	}
	k.running(cmd.Process.Pid)
	ended := make(chan error, 1)
	go func() { ended <- wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = cmd.Process.Kill()
		err = <-ended
	}
	k.ended(err)
	return err
}

func (k *Keeper) running(pid int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state.Running, k.state.PID, k.state.Since = true, pid, time.Now()
}

func (k *Keeper) ended(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state.Running, k.state.PID, k.state.Since = false, 0, time.Now()
	k.state.Restarts++
	k.state.LastExit = "exit status 0"
	if err != nil {
		k.state.LastExit = err.Error()
	}
}

func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the log directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening log %s: %w", path, err)
	}
	return f, nil
}
