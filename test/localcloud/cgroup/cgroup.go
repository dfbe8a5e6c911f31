// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cgroup makes and removes the control groups for the pods of a node's kubelet, on hosts with one unified
// hierarchy, with the old separate ones, or with both. It decides a group's contents, so a kubelet accepts it as its
// root, and must not know nodes.
package cgroup

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Hierarchy is one mounted cgroup file system.
type Hierarchy struct {
	Dir string
	// V2 means the hierarchy is of version 2.
	V2 bool
	// CPUSet means a version 1 hierarchy holds the cpuset controller. Its groups take no process before their
	// processors and memory are set.
	CPUSet bool
}

// Host is how the machine's control groups are laid out.
type Host struct {
	Hierarchies []Hierarchy
}

// Unified reports whether the machine has only the version 2 hierarchy.
func (h Host) Unified() bool {
	return len(h.Hierarchies) > 0 && !slices.ContainsFunc(h.Hierarchies, func(x Hierarchy) bool { return !x.V2 })
}

// Detect reads the layout of this machine.
func Detect() (Host, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return Host{}, fmt.Errorf("reading the mounts: %w", err)
	}
	defer func() { _ = f.Close() }()
	return parse(f)
}

// parse finds the cgroup file systems in the text of proc(5)'s mountinfo.
func parse(mountinfo io.Reader) (Host, error) {
	var host Host
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		before, after, found := strings.Cut(lines.Text(), " - ")
		mount, super := strings.Fields(before), strings.Fields(after)
		if !found || len(mount) < 5 || len(super) < 3 {
			continue
		}
		dir, kind, options := mount[4], super[0], strings.Split(super[2], ",")
		switch kind {
		case "cgroup2":
			host.Hierarchies = append(host.Hierarchies, Hierarchy{Dir: dir, V2: true})
		case "cgroup":
			host.Hierarchies = append(host.Hierarchies, Hierarchy{Dir: dir, CPUSet: slices.Contains(options, "cpuset")})
		}
	}
	if err := lines.Err(); err != nil {
		return Host{}, fmt.Errorf("reading the mounts: %w", err)
	}
	if len(host.Hierarchies) == 0 {
		return Host{}, fmt.Errorf("no cgroup file system is mounted: mount cgroup2 on /sys/fs/cgroup")
	}
	return host, nil
}

// kubeletControllers returns the controllers a kubelet demands below its root if the machine has them.
func kubeletControllers() []string { return []string{"cpu", "cpuset", "hugetlb", "memory", "pids"} }

// subtreeControl is the file with the controllers of a group's children.
const subtreeControl = "cgroup.subtree_control"

// Create makes the group name (a path of one or more parts) in every hierarchy of a kubelet's.
func (h Host) Create(name string) error {
	unified := h.Unified()
	for _, hierarchy := range h.Hierarchies {
		if hierarchy.V2 && !unified {
			continue // holds no controller for a kubelet
		}
		if err := hierarchy.create(name); err != nil {
			return fmt.Errorf("making cgroup %s: %w", name, err)
		}
	}
	return nil
}

func (h Hierarchy) create(name string) error {
	parent := h.Dir
	for part := range strings.SplitSeq(name, "/") {
		if h.V2 {
			if err := enableControllers(parent); err != nil {
				return err
			}
		}
		dir := filepath.Join(parent, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			return err
		}
		if h.CPUSet {
			if err := inheritCPUSet(parent, dir); err != nil {
				return err
			}
		}
		parent = dir
	}
	if h.V2 {
		return enableControllers(parent)
	}
	return nil
}

// enableControllers gives the children of dir all of a kubelet's controllers.
func enableControllers(dir string) error {
	available, err := readList(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	on, err := readList(filepath.Join(dir, subtreeControl))
	if err != nil {
		return err
	}
	for _, controller := range kubeletControllers() {
		if !slices.Contains(available, controller) || slices.Contains(on, controller) {
			continue
		}
		if err := writeFile(filepath.Join(dir, subtreeControl), "+"+controller); err != nil {
			return fmt.Errorf("enabling controller %s (in a container, move the processes out of its root cgroup first): %w", controller, err)
		}
	}
	return nil
}

// inheritCPUSet copies the processors and memory of parent down to dir.
func inheritCPUSet(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, file), strings.TrimSpace(string(value))); err != nil {
			return err
		}
	}
	return nil
}

func readList(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(data)), nil
}

// writeFile writes to a file of a cgroup file system: never creating it, in one write.
func writeFile(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
