// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// programDirs are the host's directories with programs and libraries. A node
// sees them read-only.
func programDirs() []string {
	return []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt"}
}

// kernelSettings are the machine-wide parameters a kubelet sets at start. They belong to the host, so a node sees
// files with those values already in them, and writes nothing.
func kernelSettings() map[string]string {
	return map[string]string{
		"vm/overcommit_memory":      "1",
		"vm/panic_on_oom":           "0",
		"kernel/panic":              "10",
		"kernel/panic_on_oops":      "1",
		"kernel/keys/root_maxkeys":  "1000000",
		"kernel/keys/root_maxbytes": "25000000",
	}
}

// enterRoot gives the process a root file system of its own and moves into it.
// The mounts exist in this process's mount namespace only.
func enterRoot(c Config) error {
	// First, to hide everything below from the host.
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	root := filepath.Join(c.Disk, "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return fmt.Errorf("making the root directory: %w", err)
	}
	if err := mount("tmpfs", root, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	steps := []func(Config, string) error{mountPrograms, mountEtc, mountKernel, mountMemory, mountDisks}
	for _, step := range steps {
		if err := step(c, root); err != nil {
			return err
		}
	}
	if err := pivot(root); err != nil {
		return err
	}
	if err := shadowKernelSettings(); err != nil {
		return err
	}
	if err := shadowHardware(c); err != nil {
		return err
	}
	// Containers with mount propagation need a shared root; shared only among the node's own namespaces, as it was
	// made private above.
	return mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

func mountPrograms(c Config, root string) error {
	for _, name := range programDirs() {
		source, target := "/"+name, filepath.Join(root, name)
		info, err := os.Lstat(source)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("checking %s: %w", source, err)
		}
		if info.Mode()&os.ModeSymlink != 0 {
			if err := copyLink(source, target); err != nil {
				return err
			}
			continue
		}
		if err := bindReadOnly(source, target); err != nil {
			return err
		}
	}
	return bindReadOnly(c.BinDir, filepath.Join(root, binDir))
}

func copyLink(source, target string) error {
	to, err := os.Readlink(source)
	if err != nil {
		return fmt.Errorf("reading link %s: %w", source, err)
	}
	if err := os.Symlink(to, target); err != nil {
		return fmt.Errorf("linking %s: %w", target, err)
	}
	return nil
}

// mountEtc shows the host's /etc with the node's own files on top, kept in memory.
func mountEtc(_ Config, root string) error {
	upper, work, target := filepath.Join(root, "node", "etc", "upper"), filepath.Join(root, "node", "etc", "work"), filepath.Join(root, "etc")
	for _, dir := range []string{upper, work, target} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making %s: %w", dir, err)
		}
	}
	return mount("overlay", target, "overlay", 0, "lowerdir=/etc,upperdir="+upper+",workdir="+work)
}

func mountKernel(_ Config, root string) error {
	for _, dir := range []string{"dev", "sys"} {
		if err := bind("/"+dir, filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	return mountAt("proc", filepath.Join(root, "proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

func mountMemory(_ Config, root string) error {
	for dir, options := range map[string]string{"run": "mode=0755", "tmp": "mode=1777"} {
		if err := mountAt("tmpfs", filepath.Join(root, dir), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "var"), 0o755); err != nil {
		return fmt.Errorf("making /var: %w", err)
	}
	if err := os.Symlink("/run", filepath.Join(root, "var", "run")); err != nil {
		return fmt.Errorf("linking /var/run: %w", err)
	}
	return nil
}

func mountDisks(c Config, root string) error {
	disks := c.disks()
	for _, source := range slices.Sorted(maps.Keys(disks)) {
		if err := os.MkdirAll(source, 0o755); err != nil {
			return fmt.Errorf("making %s: %w", source, err)
		}
		if err := bind(source, filepath.Join(root, disks[source])); err != nil {
			return err
		}
	}
	return nil
}

// pivot makes root the process's root and lets go of the host's.
func pivot(root string) error {
	const old = "node/host"
	if err := os.MkdirAll(filepath.Join(root, old), 0o700); err != nil {
		return fmt.Errorf("making a directory for the old root: %w", err)
	}
	if err := unix.PivotRoot(root, filepath.Join(root, old)); err != nil {
		return fmt.Errorf("changing the root to %s: %w", root, err)
	}
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("changing into the new root: %w", err)
	}
	if err := unix.Unmount("/"+old, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting the host's root: %w", err)
	}
	return nil
}

func shadowKernelSettings() error {
	settings := kernelSettings()
	for _, path := range slices.Sorted(maps.Keys(settings)) {
		shadow, setting := filepath.Join("/node/sysctl", path), filepath.Join("/proc/sys", path)
		if _, err := os.Stat(setting); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := writeFile(shadow, []byte(settings[path]+"\n"), 0o644); err != nil {
			return err
		}
		if err := mount(shadow, setting, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

func bind(source, target string) error {
	return mountAt(source, target, "", unix.MS_BIND|unix.MS_REC, "")
}

func bindReadOnly(source, target string) error {
	if err := bind(source, target); err != nil {
		return err
	}
	return mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// mountAt makes the directory target and mounts on it.
func mountAt(source, target, kind string, flags uintptr, options string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", target, err)
	}
	return mount(source, target, kind, flags, options)
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mounting %s on %s (flags %s): %w", strconv.Quote(source), target, strconv.FormatUint(uint64(flags), 16), err)
	}
	return nil
}

func writeFile(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making %s: %w", filepath.Dir(path), err)
	}
	// Removed first: the path may be a link to elsewhere.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	if err := os.WriteFile(path, data, mode); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
