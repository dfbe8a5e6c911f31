// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Controllers lists the controllers a unified hierarchy's root gives to its children. Other hosts have none.
func (h Host) Controllers() ([]string, error) {
	if !h.Unified() {
		return nil, nil
	}
	on, err := readList(filepath.Join(h.Hierarchies[0].Dir, subtreeControl))
	if err != nil {
		return nil, fmt.Errorf("reading the root cgroup's controllers: %w", err)
	}
	return on, nil
}

// RestoreControllers takes back the controllers Create gave to the children of a unified hierarchy's root, beyond
// before. One in use by somebody else stays.
func (h Host) RestoreControllers(before []string) error {
	now, err := h.Controllers()
	if err != nil {
		return err
	}
	var errs []error
	for _, controller := range now {
		if slices.Contains(before, controller) || !slices.Contains(kubeletControllers(), controller) {
			continue
		}
		err := writeFile(filepath.Join(h.Hierarchies[0].Dir, subtreeControl), "-"+controller)
		if err != nil && !errors.Is(err, unix.EBUSY) {
			errs = append(errs, fmt.Errorf("taking cgroup controller %s back: %w", controller, err))
		}
	}
	return errors.Join(errs...)
}

// SaveControllers writes the list to a file, for LoadControllers.
func SaveControllers(path string, controllers []string) error {
	data, err := json.Marshal(controllers)
	if err != nil {
		return fmt.Errorf("encoding the list of controllers: %w", err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("saving the list of controllers: %w", err)
	}
	return nil
}

// LoadControllers reads the list of a file and reports whether there is one.
func LoadControllers(path string) (controllers []string, saved bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading the list of controllers: %w", err)
	}
	if err := json.Unmarshal(data, &controllers); err != nil {
		return nil, false, fmt.Errorf("decoding the list of controllers in %s: %w", path, err)
	}
	return controllers, true, nil
}
