// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/modelberth/modelberth/test/vllmsim/launch"
)

// sharedBytes is the size of /dev/shm.
func sharedBytes() int64 {
	var stat syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &stat); err != nil {
		return 0
	}
	return int64(stat.Blocks) * stat.Bsize
}

// userKnown reports whether /etc/passwd has the user id.
func userKnown(id int) bool {
	data, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Split(line, ":"); len(fields) > 2 && fields[2] == strconv.Itoa(id) {
			return true
		}
	}
	return false
}

// variables are the environment by name.
func variables(environ []string) map[string]string {
	all := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		all[name] = value
	}
	return all
}

// compileCache returns vLLM's directory of compiled code.
func compileCache(env map[string]string) string {
	home := cmp.Or(env["XDG_CACHE_HOME"], filepath.Join(cmp.Or(env["HOME"], "/"), ".cache"))
	return filepath.Join(cmp.Or(env["VLLM_CACHE_ROOT"], filepath.Join(home, "vllm")), "torch_compile_cache")
}

// compiled reports whether the cache has an entry for this shape, and checks the right to write there.
func compiled(dir, key string) (bool, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, osError(err)
	}
	_, err := os.Stat(filepath.Join(dir, key))
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return false, osError(err)
	}
	return false, nil
}

func keepCompiled(dir, key string) error {
	if err := os.WriteFile(filepath.Join(dir, key), []byte("compiled\n"), 0o600); err != nil {
		return osError(err)
	}
	return nil
}

// osError writes an error as Python does.
func osError(err error) error {
	var failed *os.PathError
	var number syscall.Errno
	if !errors.As(err, &failed) || !errors.As(err, &number) {
		return &launch.Error{Kind: "OSError", Message: err.Error()}
	}
	kind := "OSError"
	if errors.Is(err, os.ErrPermission) {
		kind = "PermissionError"
	}
	text := number.Error()
	return &launch.Error{Kind: kind, Message: fmt.Sprintf("[Errno %d] %s: '%s'", int(number), strings.ToUpper(text[:1])+text[1:], failed.Path)}
}

// duration reads a variable.
func duration(env map[string]string, name string) (time.Duration, error) {
	if env[name] == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(env[name])
	if err != nil || d < 0 {
		return 0, &launch.Error{Kind: "ValueError", Message: fmt.Sprintf("vllmsim: %s is %q: write a duration such as 2s", name, env[name])}
	}
	return d, nil
}
