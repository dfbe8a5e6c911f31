// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/modelberth/modelberth/test/localcloud/internal/golden"
)

func TestSetFigures(t *testing.T) {
	figures := SetFigures{
		Sets: Sets{Count: 40, Replicas: 5}, MachinesTake: 30 * time.Second, Peak: 101e6,
		Phases: []Phase{
			{
				What: "created", Changed: 200, Took: 75 * time.Second, Memory: 97e6,
				Requests: Tally{Writes: 2200, Reads: 300, Events: 900, Kinds: map[string]int{"patch workspaces": 400, "create nodeclaims": 200}},
			},
			{
				What: "scaled down to 1", Changed: 160, Took: 12 * time.Second, Memory: 90e6,
				Requests: Tally{Writes: 480, Kinds: map[string]int{"delete workspaces": 160}},
			},
		},
	}
	var out strings.Builder
	if err := figures.Print(&out); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "sets.txt", out.String(), *update)
}
