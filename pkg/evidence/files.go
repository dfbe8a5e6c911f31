// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/pkg/calibration"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/planner"
)

// mostBytes limits the bytes read of a file. A ConfigMap holds no more.
const mostBytes = 1 << 20

// interval is the time between two reads of the directory. The kubelet takes about a minute to update a mounted
// ConfigMap.
const interval = 10 * time.Second

// Files keeps a Planner up to date with a directory of calibration files.
type Files struct {
	// Dir may be a mounted ConfigMap. It may be missing.
	Dir string
	// Keys are the public keys whose signatures count.
	Keys []ed25519.PublicKey
	// Base is the catalogue without the files. Build returns a planner for a catalogue.
	Base  *catalog.Catalog
	Build func(*catalog.Catalog) *planner.Planner
	// Planner receives each new planner.
	Planner *Planner
	Metrics *Metrics
	// Changed is called after the planner changed.
	Changed func(context.Context)
	Clock   clock.WithTicker

	// read are the files of the current planner.
	read []calibration.Input
}

// Start reads the directory again and again until the context ends.
func (f *Files) Start(ctx context.Context) error {
	ticker := f.Clock.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			f.Look(ctx)
		}
	}
}

// Look reads the directory. If a file changed, it makes a new planner from the valid files. If it cannot read the
// directory, it keeps the current planner.
func (f *Files) Look(ctx context.Context) {
	logger := log.FromContext(ctx).WithName("calibration").WithValues("directory", f.Dir)
	files, err := readAll(f.Dir)
	if err != nil {
		logger.Error(err, "cannot read the calibration files: plans use the previous ones")
		return
	}
	if reflect.DeepEqual(files, f.read) {
		return
	}
	known, used, refused := calibration.Overlay(f.Base, files, f.Keys)
	for _, err := range refused {
		logger.Error(err, "a calibration file is refused: no plan uses it")
	}
	logger.Info("plans use calibration files", "files", strings.Join(used, ", "), "refused", len(refused))
	f.read = files
	f.Planner.current.Store(f.Build(known))
	f.Metrics.set(len(used), len(refused))
	f.Changed(ctx)
}

// readAll returns the files of a directory in the order of their names; none if it does not exist. A mounted ConfigMap
// has its files in ..data, and links to them.
func readAll(dir string) ([]calibration.Input, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading directory %q: %w", dir, err)
	}
	var out []calibration.Input
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "..") || entry.IsDir() {
			continue
		}
		data, err := readFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		out = append(out, calibration.Input{Name: entry.Name(), Data: data})
	}
	return out, nil
}

// readFile returns the beginning of a file: one byte more than a file may have, so that Decode rejects a longer one.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading a calibration file: %w", err)
	}
	defer func() { _ = file.Close() }() // the file was only read
	data, err := io.ReadAll(io.LimitReader(file, mostBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading calibration file %q: %w", path, err)
	}
	return data, nil
}
