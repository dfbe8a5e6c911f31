// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// pin is a module at a version, with the checksum of its contents, and its reader.
type pin struct {
	file, module, version, sum string
	// records are the paths of the generated files with the prices.
	records []string
	// survey of more regions; nil for none.
	survey *survey
}

// download fetches a module through the go command into its cache and returns the directory.
func download(ctx context.Context, p pin) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", p.module+"@"+p.version)
	cmd.Dir = os.TempDir() // outside of every module, so that the command changes none
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	runErr := cmd.Run()
	var got struct{ Dir, Sum, Error string }
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		return "", fmt.Errorf("downloading %s %s: %w: %s", p.module, p.version, cmp.Or(runErr, err), oneLine(stderr.String()))
	}
	switch {
	case got.Error != "":
		return "", fmt.Errorf("downloading %s %s: %s", p.module, p.version, oneLine(got.Error))
	case got.Sum != p.sum:
		return "", fmt.Errorf("%s %s has the checksum %s, not the pinned %s: do not use it before you know why",
			p.module, p.version, got.Sum, p.sum)
	}
	return got.Dir, nil
}

// oneLine joins the lines of a text.
func oneLine(text string) string {
	return strings.Join(strings.Fields(text), " ")
}
