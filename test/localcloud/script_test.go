// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/script"
)

func TestPrintScript(t *testing.T) {
	var out bytes.Buffer
	err := printScript(&out, cloud.ScriptState{
		Script: script.Script{Cloud: script.Azure, Rules: []script.Rule{
			{SKU: "*A100*", Zone: "eastus-1", CapacityType: "spot", Times: 2, Outcome: script.NoCapacity, Kind: "zonal"},
			{Outcome: script.Quota, Cloud: script.AWS},
		}},
		Counts: []script.Count{{Attempts: 3, Met: 2}, {Attempts: 1, Met: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `RULE  SKU     ZONE      CAPACITY  OUTCOME           SPEAKS  ATTEMPTS  MET
0     *A100*  eastus-1  spot      noCapacity zonal  azure   3         2 of 2
1     *       *         *         quota             aws     1         1
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestSetAndClearScript(t *testing.T) {
	l, err := layout.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const good, bad = `rules: [{outcome: quota}]`, `rules: [{outcome: quotas}]`
	run := func(in string, args ...string) error {
		cmd := newRootCommand()
		cmd.SetArgs(append([]string{"script", "--state-dir=" + l.Root}, args...))
		cmd.SetIn(strings.NewReader(in))
		return cmd.Execute()
	}
	read := func() string {
		data, err := os.ReadFile(l.Script())
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(data)
	}
	if err := run(good, "-"); err != nil || read() != good {
		t.Errorf("set: error %v, script %q", err, read())
	}
	if err := run(bad, "-"); err == nil || !strings.Contains(err.Error(), `rules[0].outcome: "quotas" is unknown`) || read() != good {
		t.Errorf("a bad script: error %v, script %q; want an error that names the rule, and the script as it was", err, read())
	}
	if err := run("", "a", "--clear"); err == nil || !strings.Contains(err.Error(), "leave one out") {
		t.Errorf("a script and --clear: error %v", err)
	}
	for range 2 {
		if err := run("", "--clear"); err != nil || read() != "" {
			t.Errorf("clear: error %v, script %q", err, read())
		}
	}
	if err := run(""); err == nil || !strings.Contains(err.Error(), l.Root) {
		t.Errorf("asking a cloud that is not there: error %v, want one that names the directory", err)
	}
}
