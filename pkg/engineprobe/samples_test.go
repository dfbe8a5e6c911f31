// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engineprobe

import (
	"fmt"
	"strings"
	"testing"
)

// A user controls the engine: a million metrics of other names must not fill the controller's memory.
func TestOtherMetricsAreNotKept(t *testing.T) {
	var text strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&text, "vllm:made_up_%d 1\n", i)
	}
	text.WriteString("vllm:num_requests_running 2\nvllm:num_requests_waiting 3\nvllm:time_to_first_token_seconds_sum 4\n")
	got, err := readSamples(strings.NewReader(text.String()))
	if err != nil || len(got) != 3 {
		t.Errorf("%d names are kept (%v), want 3", len(got), err)
	}
}
