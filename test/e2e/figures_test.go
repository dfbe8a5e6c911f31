// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// figure logs how long something took, and writes it into the file that E2E_FIGURES names, if any: make
// bench-runtime prints it.
func figure(t *testing.T, what string, took time.Duration) {
	t.Helper()
	t.Logf("%s took %.1f s", what, took.Seconds())
	path := os.Getenv("E2E_FIGURES")
	if path == "" {
		return
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, err := fmt.Fprintf(file, "%10.3f s  %s\n", took.Seconds(), what); err != nil {
		t.Fatal(err)
	}
}

// elapsed is the figure of what ends now.
func elapsed(t *testing.T, what string, since time.Time) {
	t.Helper()
	figure(t, what, time.Since(since))
}

// stages logs the duration of a Workspace's stages by its status, in whole seconds, and records the time from a usable
// machine to ready, and to the first token after that.
func stages(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	var machine time.Time
	var after []string
	for _, stage := range ws.Status.Startup {
		if stage.EndTime == nil {
			continue
		}
		took := stage.EndTime.Sub(stage.StartTime.Time).Seconds()
		t.Logf("%s: stage %s took %.0f s", ws.Name, stage.Stage, took)
		switch {
		case stage.Stage == v1beta1.StageMachine:
			machine = stage.EndTime.Time
		case !machine.IsZero():
			after = append(after, fmt.Sprintf("%s %.0f", stage.Stage, took))
		}
		if stage.Stage == v1beta1.StageReady && !machine.IsZero() {
			figure(t, fmt.Sprintf("%s: machine ready to model ready by status.startup (%s)", t.Name(), strings.Join(after, ", ")),
				stage.EndTime.Sub(machine))
			figure(t, t.Name()+": the first request to its first token", firstToken(t, ws))
		}
	}
}

// firstToken asks for a few words and returns when the first of them came.
func firstToken(t *testing.T, ws *v1beta1.Workspace) time.Duration {
	t.Helper()
	var result struct {
		TTFT struct {
			P50 float64 `json:"p50"`
		} `json:"ttftMs"`
	}
	decodeJSON(t, berth(t, ws.Namespace, "bench", ws.Name, "--requests=1", "--concurrency=1", "--input-tokens=8", "--output-tokens=2", "-o", "json"),
		&result)
	if result.TTFT.P50 <= 0 {
		t.Errorf("the first request of %s took no time to its first token", ws.Name)
	}
	return time.Duration(result.TTFT.P50 * float64(time.Millisecond))
}
