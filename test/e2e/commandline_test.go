// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/cli"
	"github.com/modelberth/modelberth/pkg/options"
)

// berth runs kubectl berth as somebody with the cluster's kubeconfig, and returns what it prints.
func berth(t *testing.T, ns string, args ...string) string {
	t.Helper()
	text, code := tryBerth(t, append(slices.Clone(args), "--namespace="+ns)...)
	if code != 0 {
		t.Fatalf("kubectl berth %s ended with %d", strings.Join(args, " "), code)
	}
	return text
}

// tryBerth is berth without a namespace. It also returns the exit code.
func tryBerth(t *testing.T, args ...string) (text string, code int) {
	t.Helper()
	in, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }() // nothing was written
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }() // it is read by its name
	var problems bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), readyTimeout)
	defer cancel()
	all := append(slices.Clone(args), "--kubeconfig="+local.kubeconfig)
	code = cli.Main(ctx, all, cli.Process(in, out, &problems, func(string) string { return "" }, options.Effective))
	printed, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("$ kubectl berth %s\n%s%s", strings.Join(args, " "), printed, problems.String())
	return string(printed), code
}

// expectText checks that a command says some things.
func expectText(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, part := range want {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

// commandLine looks after one Workspace from its manifest to a rollback, through a real API server and
// kubelet.
func commandLine(t *testing.T) {
	ns := namespace(t)
	kubectl(t, "apply", "--namespace="+ns, "--filename="+example("demo.yaml"))
	followed := berth(t, ns, "status", "demo", "--watch", "--timeout="+readyTimeout.String())
	expectText(t, followed, " plan 1 × ", " machine demo-", " pod demo-0 ", " stage engine ", " ready at http://demo."+ns)
	expectText(t, berth(t, ns, "status", "demo"), "machine demo-", "pod demo-0 ready", "endpoint http://demo."+ns, "models "+tinyModel)
	expectText(t, berth(t, ns, "status"), "demo", tinyModel, "Ready")

	t.Run("logs", func(t *testing.T) {
		for _, args := range [][]string{{"logs", "demo", "--tail=5"}, {"logs", "demo", "--weights", "--tail=5"}} {
			if strings.TrimSpace(berth(t, ns, args...)) == "" {
				t.Errorf("%v prints nothing", args)
			}
		}
	})
	t.Run("chat", func(t *testing.T) {
		for _, args := range [][]string{{}, {"--no-stream"}} {
			if strings.TrimSpace(berth(t, ns, append([]string{"chat", "demo", "--max-tokens=8", "Hello"}, args...)...)) == "" {
				t.Errorf("%v: the model says nothing", args)
			}
		}
	})
	t.Run("bench", func(t *testing.T) { expectBench(t, ns) })
	t.Run("render", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "rendered.yaml")
		if err := os.WriteFile(path, []byte(berth(t, ns, "render", "demo")), 0o600); err != nil {
			t.Fatal(err)
		}
		kubectl(t, "diff", "--namespace="+ns, "--filename="+path) // it fails where anything differs
	})
	t.Run("rollback", func(t *testing.T) { expectRollback(t, ns) })
}

// expectBench records a result, and nothing else of the status changes.
func expectBench(t *testing.T, ns string) {
	before := workspace(t, ns, "demo")
	berth(t, ns, "bench", "demo", "--requests=2", "--concurrency=1", "--input-tokens=8", "--output-tokens=4", "--record")
	after := workspace(t, ns, "demo")
	if after.Status.Performance == nil || after.Status.Performance.Metrics["peakTokensPerMinute"].Value == "" {
		t.Errorf("status.performance is %+v, want a result", after.Status.Performance)
	}
	if after.Status.State != before.Status.State || len(after.Status.Conditions) != len(before.Status.Conditions)+1 {
		t.Errorf("the status became %+v", after.Status)
	}
}

// expectRollback takes an edit back: the first revision is in use again.
func expectRollback(t *testing.T, ns string) {
	first := workspace(t, ns, "demo").Status.Plan.Revision
	kubectl(t, "patch", "workspace", "demo", "--namespace="+ns, "--type=merge",
		`--patch={"inference": {"engine": {"env": [{"name": "EDITED", "value": "yes"}]}}}`)
	edited := waitRevision(t, ns, func(revision string) bool { return revision != first })
	if edited.Status.Performance == nil {
		t.Error("the recorded result is gone after an edit")
	}
	expectText(t, berth(t, ns, "history", "demo"), "*  2", "inference.engine.env[0].name: nothing → EDITED")
	expectText(t, berth(t, ns, "rollback", "demo"), "goes back to the spec of revision 1", "EDITED → nothing")
	waitRevision(t, ns, func(revision string) bool { return revision == first })
	berth(t, ns, "status", "demo", "--watch", "--timeout="+readyTimeout.String())
}

// waitRevision waits until the Workspace is planned with a revision.
func waitRevision(t *testing.T, ns string, is func(string) bool) *v1beta1.Workspace {
	t.Helper()
	waitFor(t, "another revision", seenTimeout, func(ctx context.Context) (bool, error) {
		ws := workspace(t, ns, "demo")
		return ws.Status.Plan != nil && is(ws.Status.Plan.Revision) && ws.Status.ObservedGeneration == ws.Generation, ctx.Err()
	})
	return workspace(t, ns, "demo")
}
