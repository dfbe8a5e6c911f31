// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/test/localcloud/cleanup"
	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/lock"
)

// owner is a program with its own cloud. No other program may change the cloud, and it ends with the program.
type owner struct {
	cloud demoCloud
	// command names the program in the lock.
	command string
	// logs is the directory for an archive of the logs if something fails; empty keeps none.
	logs string
}

func (o *owner) register(cmd *cobra.Command) {
	o.cloud.flags.register(cmd)
	cmd.Flags().StringVar(&o.logs, "keep-logs", "", "directory for an archive of the cloud's logs if something fails; empty keeps none")
}

// use brings a new cloud up, works on it, and always takes it down. If this program is killed, the cloud ends, too;
// its files stay until the next use.
func (o *owner) use(ctx context.Context, out io.Writer, work func(context.Context) error) (err error) {
	l := o.cloud.layout
	if err := preflight(&o.cloud.flags); err != nil {
		return err
	}
	held, err := acquire(ctx, l, lock.Self(o.command, true), out)
	if err != nil {
		return err
	}
	defer held.Release()
	defer func() { err = errors.Join(interruption(ctx, err), o.end(l, err != nil, out)) }()
	if _, running, err := cleanup.Running(l); err != nil {
		return err
	} else if running {
		fmt.Fprintf(out, "an unused cloud is up in %s\n", l.Root)
		if err := takeDown(ctx, l, out); err != nil {
			return err
		}
	}
	tied, tie, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making the supervisor's tie: %w", err)
	}
	defer func() { _ = tie.Close() }()
	err = renew(ctx, l, &o.cloud.flags, tied, out)
	_ = tied.Close()
	if err != nil {
		return err
	}
	if err := o.follow(ctx, out); err != nil {
		return err
	}
	return work(ctx)
}

// follow shows how the cloud starts.
func (o *owner) follow(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("the cloud was not ready after %s", startLimit))
	defer cancel()
	return follow(ctx, o.cloud.layout, out)
}

// end takes the cloud down, also after a signal.
func (o *owner) end(l layout.Layout, failed bool, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience+sweepPatience)
	defer cancel()
	var lost error
	if failed && o.logs != "" {
		var file string
		if file, lost = saveLogs(l, o.logs, time.Now()); lost == nil {
			fmt.Fprintf(out, "logs of every component: %s\n", file)
		}
	}
	return errors.Join(lost, takeDown(ctx, l, out))
}

// interruption replaces the errors after a signal.
func interruption(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// saveLogs writes all logs of a cloud to an archive in dir.
func saveLogs(l layout.Layout, dir string, now time.Time) (path string, err error) {
	path = filepath.Join(dir, fmt.Sprintf("%s-logs-%s.tar.gz", filepath.Base(l.Root), now.Format("20060102T150405")))
	file, err := os.Create(path)
	if err != nil {
		return "", fmt.Errorf("keeping the logs: %w", err)
	}
	packed := gzip.NewWriter(file)
	archive := tar.NewWriter(packed)
	err = filepath.WalkDir(l.Root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a node's directory goes with its node, at any moment
		}
		if err != nil || !entry.Type().IsRegular() || filepath.Ext(path) != ".log" {
			return err
		}
		return addFile(archive, l.Root, path)
	})
	if err := errors.Join(err, archive.Close(), packed.Close(), file.Close()); err != nil {
		return "", fmt.Errorf("keeping the logs: %w", err)
	}
	return path, nil
}

// addFile adds as much of a file as there is now: its program may still write to it.
func addFile(archive *tar.Writer, root, path string) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return err
	}
	if header.Name, err = filepath.Rel(root, path); err != nil {
		return err
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.CopyN(archive, file, info.Size())
	return err
}
