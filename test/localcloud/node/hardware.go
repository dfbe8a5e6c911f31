// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"
)

// If a kubelet, by its library cAdvisor, reads its machine's resources.
const (
	processorsDir = "/sys/devices/system/cpu"
	numaDir       = "/sys/devices/system/node"
	memoryFile    = "/proc/meminfo"
)

// hardwareDir holds the files a node shows in place of the host's hardware.
const hardwareDir = "/node/hardware"

// memoryTotal matches the total in proc(5)'s meminfo.
func memoryTotal() *regexp.Regexp { return regexp.MustCompile(`(?m)^MemTotal:.*$`) }

// hardware renders the files for the processors and memory of the node's machine type. The processors have no
// topology: given one, a kubelet confines its pods to those processors by number, and the host has fewer. So pods
// share the host's processors by weight, and its memory by use, whatever they request.
func hardware(c Config, meminfo []byte) []file {
	out := []file{
		{Path: memoryFile, Data: memoryTotal().ReplaceAllLiteral(meminfo, fmt.Appendf(nil, "MemTotal: %d kB", c.MemoryGiB<<20))},
		{Path: processorsDir + "/online", Data: fmt.Appendf(nil, "0-%d\n", c.CPUs-1)},
		{Path: numaDir + "/online", Data: []byte("\n")},
	}
	for cpu := range c.CPUs {
		out = append(out, file{Path: fmt.Sprintf("%s/cpu%d/online", processorsDir, cpu), Data: []byte("1\n")})
	}
	for i := range out {
		out[i].Mode = 0o444
	}
	return out
}

// shadowHardware puts the files over the host's, for this node's programs only: a container has a /proc and a /sys
// of its own and sees the host's processors and memory.
func shadowHardware(c Config) error {
	if c.CPUs == 0 {
		return nil
	}
	meminfo, err := os.ReadFile(memoryFile)
	if err != nil {
		return fmt.Errorf("reading the host's memory: %w", err)
	}
	for _, f := range hardware(c, meminfo) {
		if err := writeFile(filepath.Join(hardwareDir, f.Path), f.Data, f.Mode); err != nil {
			return err
		}
	}
	for _, path := range []string{processorsDir, numaDir, memoryFile} {
		err := mount(filepath.Join(hardwareDir, path), path, "", unix.MS_BIND, "")
		if path == numaDir && errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without NUMA; then the processors are counted in the other directory
		}
		if err != nil {
			return err
		}
	}
	return nil
}
