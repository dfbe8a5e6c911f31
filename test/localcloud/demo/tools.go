// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// killPatience is a command's time to end after its signal.
const killPatience = 5 * time.Second

// tools are the programs a person would use as well.
type tools struct {
	helm, kubectl, kubeconfig string
}

// command prepares a program to run with the cluster's kubeconfig.
func (t tools) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(cmd.Environ(), "KUBECONFIG="+t.kubeconfig)
	cmd.WaitDelay = killPatience
	return cmd
}

// run returns a program's output; the error carries its complaints.
func (t tools) run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := t.command(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(stderr.String())
		return stdout.String(), cause(ctx, fmt.Errorf("%s %s: %w: %s", filepath.Base(program), args[0], err, said))
	}
	return stdout.String(), nil
}

func (t tools) kubectlOutput(ctx context.Context, args ...string) (string, error) {
	return t.run(ctx, t.kubectl, args...)
}

// show runs kubectl and shows command and output as in a terminal.
func (t tools) show(ctx context.Context, console *Console, args ...string) error {
	ctx, cancel := within(ctx, showLimit, "kubectl "+args[0]+" did not end")
	defer cancel()
	console.Command("kubectl " + shellJoin(args))
	out, err := t.kubectlOutput(ctx, args...)
	console.Print(out)
	return err
}

// install installs or upgrades the chart and waits until its pods are ready.
func (t tools) install(ctx context.Context, chart string, values map[string]any) error {
	encoded, err := json.Marshal(values)
	if err != nil {
		return fmt.Errorf("encoding the chart's values: %w", err)
	}
	cmd := t.command(ctx, t.helm, "upgrade", release, chart, "--install", "--namespace="+systemNamespace, "--create-namespace",
		"--values=-", "--wait", "--timeout="+installLimit.String())
	cmd.Stdin = bytes.NewReader(encoded)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return cause(ctx, fmt.Errorf("helm upgrade: %w: %s", err, bytes.TrimSpace(out)))
	}
	return nil
}

// shellJoin joins arguments and quotes those with a meaning for a shell.
func shellJoin(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = arg
		if strings.ContainsAny(arg, " \t\n\"'`$&|;<>(){}[]*?!#~\\") {
			quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
