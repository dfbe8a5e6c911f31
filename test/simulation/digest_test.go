// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A digest compares two checkouts: a change with the same digests of some thousand stories has changed nothing visible
// to the cluster. A read added or saved by the change draws another fault, and so tells another story.

// digest is a hash of the controller's requests to write and of its events, in their order. The zero value is ready.
type digest struct {
	writes, events int
	sum            hash.Hash
}

// isDigested reports whether anybody reads the digests.
func isDigested() bool { return *sums != "" || *only >= 0 }

// write adds a request with its outcome: the object is as the API server returned it.
func (d *digest) write(at time.Time, verb string, object client.Object, err error) {
	d.writes++
	content, _ := json.Marshal(object) // an object that is stored can be marshalled
	d.add("%s %s %T %s %v", at.Format(time.RFC3339Nano), verb, object, content, err)
}

// event adds an event.
func (d *digest) event(at time.Time, of, reason, message string) {
	d.events++
	d.add("%s %s %s %s", at.Format(time.RFC3339Nano), of, reason, message)
}

func (d *digest) add(format string, args ...any) {
	if d.sum == nil {
		d.sum = sha256.New()
	}
	fmt.Fprintf(d.sum, format+"\n", args...)
}

// String is one line: how many there are of each, and their hash.
func (d *digest) String() string {
	hashed := "none"
	if d.sum != nil {
		hashed = hex.EncodeToString(d.sum.Sum(nil))[:16]
	}
	return fmt.Sprintf("%d writes, %d events, %s", d.writes, d.events, hashed)
}

// writeDigests writes a line for each seed.
func writeDigests(path string, of map[uint64]string) error {
	out := &strings.Builder{}
	for _, seed := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(out, "%d: %s\n", seed, of[seed])
	}
	if err := os.WriteFile(path, []byte(out.String()), 0o600); err != nil {
		return fmt.Errorf("writing the digests: %w", err)
	}
	return nil
}
