// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHardwareIsTheMachineTypes(t *testing.T) {
	const meminfo = "MemTotal:       24684096 kB\nMemFree:        16736704 kB\nSwapTotal:      0 kB\n"
	got, processors := map[string]string{}, 0
	for _, f := range hardware(Config{CPUs: 24, MemoryGiB: 220}, []byte(meminfo)) {
		if match, err := filepath.Match("/sys/devices/system/cpu/cpu*/online", f.Path); err != nil {
			t.Fatal(err)
		} else if match {
			processors++
			continue
		}
		got[f.Path] = string(f.Data)
	}
	want := map[string]string{
		"/proc/meminfo":                   "MemTotal: 230686720 kB\nMemFree:        16736704 kB\nSwapTotal:      0 kB\n",
		"/sys/devices/system/cpu/online":  "0-23\n",
		"/sys/devices/system/node/online": "\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files but for the processors' (-want +got):\n%s", diff)
	}
	if processors != 24 {
		t.Errorf("%d processors, want 24", processors)
	}
}
