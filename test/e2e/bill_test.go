// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	// mostError is the largest accepted error of the ledger, as a share of the cloud's machine time.
	mostError = 0.001
	// settleTimeout bounds how long the ledger needs to store the end of the last machine.
	settleTimeout = time.Minute
)

// sale is a machine in the local cloud's own record, from its sale until it was gone.
type sale struct {
	Name           string
	Created, Ended time.Time
}

// sales returns the machines that ended since a time.
func sales(since time.Time) ([]sale, error) {
	data, err := os.ReadFile(filepath.Join(local.state, "bill.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []sale
	for line := range strings.Lines(string(data)) {
		var next sale
		if err := json.Unmarshal([]byte(line), &next); err != nil {
			return nil, err
		}
		if next.Created.After(since) {
			out = append(out, next)
		}
	}
	return out, nil
}

// charged returns the machine time in the controller's cost ledger, and the part that is uncertain; nothing if there is no
// ledger yet.
func charged(t *testing.T) (all, unsure time.Duration) {
	t.Helper()
	text, code := tryBerth(t, "cost", "-A", "--ledger-namespace="+systemNamespace, "--since=24h", "-o", "json")
	if code != 0 {
		return 0, 0
	}
	var costs struct {
		Total struct{ MachineHours, UnsureHours float64 }
	}
	decodeJSON(t, text, &costs)
	hours := func(h float64) time.Duration { return time.Duration(h * float64(time.Hour)) }
	return hours(costs.Total.MachineHours), hours(costs.Total.UnsureHours)
}

// keepAccounts turns the cost ledger on. The result compares it with the cloud's record of the machines sold meanwhile.
//
// The ledger counts a machine from the whole second of its NodeClaim's condition Launched until the NodeClaim is gone,
// and the cloud from the sale until the machine is gone. Karpenter writes the condition after the sale, and removes the
// NodeClaim after the machine. If a machine ends while no leader watches, the ledger charges it until the next reading,
// and reports that time as uncertain: the ledger may be too high by that, and never too low. These differences follow
// from the definition. Besides them, the ledger may differ by mostError, and by a second for each machine.
func keepAccounts(t *testing.T) (compare func()) {
	t.Helper()
	configure(t, "cost.enabled=true", "cost.interval=1m")
	begin := time.Now()
	before, unsureBefore := charged(t)
	return func() {
		t.Helper()
		sold, err := sales(begin)
		if err != nil || len(sold) == 0 {
			t.Fatalf("the local cloud has sold %d machines: %v", len(sold), err)
		}
		var cloud, preceded, outlived time.Duration
		for _, machine := range sold {
			cloud += machine.Ended.Sub(machine.Created)
			preceded += local.ledger.preceded(machine)
			outlived += local.ledger.outlived(machine)
		}
		want := cloud - preceded + outlived
		tolerance := time.Duration(mostError*float64(cloud)) + time.Duration(len(sold))*time.Second
		read := func() (got, unsure time.Duration, agrees bool) {
			got, unsure = charged(t)
			got, unsure = got-before, unsure-unsureBefore
			return got, unsure, got >= want-tolerance && got <= want+tolerance+unsure
		}
		got, unsure, agrees := read()
		for deadline := time.Now().Add(settleTimeout); !agrees && time.Now().Before(deadline); {
			pause(t.Context(), 5*time.Second)
			got, unsure, agrees = read()
		}
		share := func(d time.Duration) float64 { return 100 * d.Seconds() / cloud.Seconds() }
		t.Logf("%d machines: %.1f s by the cloud's record, %.1f s by the ledger (%+.2f %%), of which %.1f s are uncertain; their NodeClaims were "+
			"launched %.1f s after the sales and outlived the machines by %.1f s, so the ledger differs by %+.1f s (%+.2f %%) from its definition",
			len(sold), cloud.Seconds(), got.Seconds(), share(got-cloud), unsure.Seconds(), preceded.Seconds(), outlived.Seconds(),
			(got - want).Seconds(), share(got-want))
		if !agrees {
			t.Errorf("the ledger has %.1f s, of which %.1f s are uncertain; want %.1f s with a tolerance of %.1f s",
				got.Seconds(), unsure.Seconds(), want.Seconds(), tolerance.Seconds())
		}
	}
}
