// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestUsingPage runs the commands of docs/using.md for a Workspace during its fetch.
func TestUsingPage(t *testing.T) {
	const path = "../../docs/using.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	objects := append(past(t, loading), client.Object(pod(0)), claim("chat-1a2b", "node-1", "", "Launched", "Registered", "Initialized"))
	ran := 0
	shown := regexp.MustCompile("(?ms)^```text\n\\$ kubectl berth ([^\n]*)\n.*?\n```$").ReplaceAllStringFunc(string(page), func(block string) string {
		ran++
		command, _, _ := strings.Cut(strings.TrimPrefix(block, "```text\n$ kubectl berth "), "\n")
		c := &cluster{objects: objects, pods: &pods{progress: fetchingProgress}}
		got := c.run(t, session{}, strings.Fields(command)...)
		return "```text\n$ kubectl berth " + command + "\n" + got.Out + got.Err + "```"
	})
	if ran == 0 {
		t.Error("no command was found: does the test still know what they look like?")
	}
	if *update {
		if err := os.WriteFile(path, []byte(shown), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(page), shown); diff != "" {
		t.Errorf("%s shows something else than is printed; if that is right, run this with -update (-page +printed):\n%s", path, diff)
	}
}
