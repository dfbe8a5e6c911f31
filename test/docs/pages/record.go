// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Call is a program that a block calls, with its arguments and its standard input.
type Call struct {
	Program string
	Args    []string
	In      string
}

// recorder is a program that writes its arguments and its input to files, and prints nothing.
const recorder = `#!%s
record="$RECORD/$BASHPID"
printf '%%s\0' "$@" > "$record.args"
printf '%%s' "$0" > "$record.program"
IFS= read -r -d '' input
printf '%%s' "$input" > "$record.in"
exit 0
`

// Record runs a block of shell commands, with a recorder in place of each program. It returns the calls, in no
// particular order. Programs with a slash in their name belong to the repository. It returns an error if the block
// fails, for example because it calls another program.
func Record(ctx context.Context, b Block) (calls []Call, err error) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp("", "pages")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	work, path, record := filepath.Join(scratch, "work"), filepath.Join(scratch, "path"), filepath.Join(scratch, "record")
	for _, directory := range []string{work, path, record, filepath.Join(work, "dist")} {
		if err := os.MkdirAll(directory, 0o700); err != nil {
			return nil, err
		}
	}
	for _, program := range programs() {
		at := filepath.Join(path, program)
		if strings.Contains(program, "/") {
			at = filepath.Join(work, program)
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(at, fmt.Appendf(nil, recorder, bash), 0o700); err != nil { //nolint:gosec // a program
			return nil, err
		}
	}
	command := exec.CommandContext(ctx, bash, "-euo", "pipefail", "-c", b.Text)
	command.Dir = work
	command.Env = append([]string{"PATH=" + path, "RECORD=" + record}, variables()...)
	if out, err := command.CombinedOutput(); err != nil || len(out) > 0 {
		return nil, fmt.Errorf("running it: %w: %s", err, out)
	}
	return read(record)
}

// read returns the calls in a directory of records.
func read(record string) ([]Call, error) {
	programs, err := filepath.Glob(filepath.Join(record, "*.program"))
	if err != nil {
		return nil, err
	}
	var out []Call
	for _, file := range programs {
		base := strings.TrimSuffix(file, ".program")
		var texts [3]string
		for i, ending := range []string{".program", ".args", ".in"} {
			text, err := os.ReadFile(base + ending)
			if err != nil {
				return nil, err
			}
			texts[i] = string(text)
		}
		call := Call{Program: filepath.Base(texts[0]), In: texts[2]}
		if args, found := strings.CutSuffix(texts[1], "\x00"); found {
			call.Args = strings.Split(args, "\x00")
		}
		out = append(out, call)
	}
	return out, nil
}

// programs returns those that the pages may call. Another one is a typing mistake, or has no check yet.
func programs() []string {
	return []string{
		"kubectl", "kubectl-berth", "bin/kubectl-berth", "helm", "make", "hack/images.sh", "hack/install-deps.sh",
		"cosign", "curl", "date", "git", "grep", "jq", "openssl", "sha256sum",
	}
}

// variables returns the environment that the commands of the pages expect.
func variables() []string {
	return []string{"REGISTRY=registry.example/modelberth", "KEY=key", "HF_TOKEN=hf_token", "PASSWORD=password"}
}
