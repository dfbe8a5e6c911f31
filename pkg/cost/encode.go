// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// version is the version of the encoding.
const version = 1

// document is a ledger in its stored form.
type document struct {
	Version int       `json:"version"`
	Seen    time.Time `json:"seen"`
	// Accounts are sorted.
	Accounts []accountDocument `json:"accounts,omitempty"`
	Machines []machineDocument `json:"machines,omitempty"`
	Engines  []engineDocument  `json:"engines,omitempty"`
	// Gone are the machines that ended in the last hour.
	Gone map[string]time.Time `json:"gone,omitempty"`
	// GoneLaunched are the launch times of these machines, if known.
	GoneLaunched map[string]time.Time `json:"goneLaunched,omitempty"`
}

type accountDocument struct {
	Namespace    string `json:"namespace,omitempty"`
	Workspace    string `json:"workspace,omitempty"`
	Labels       string `json:"labels,omitempty"`
	InstanceType string `json:"instanceType,omitempty"`
	CapacityType string `json:"capacityType,omitempty"`
	// Price is in millionths of a dollar per hour.
	Price   int64            `json:"microUSDPerHour"`
	Source  string           `json:"priceSource,omitempty"`
	Periods map[string]Cells `json:"periods,omitempty"`
}

type machineDocument struct {
	UID string `json:"uid"`
	// Account is an index of Accounts.
	Account int       `json:"account"`
	State   string    `json:"state"`
	Served  bool      `json:"served,omitempty"`
	From    time.Time `json:"from"`
	Millis  int64     `json:"ms"`
	// Launched is when the cloud began to charge for the machine.
	Launched time.Time `json:"launched,omitzero"`
}

type engineDocument struct {
	Namespace string            `json:"namespace"`
	Workspace string            `json:"workspace"`
	Plan      string            `json:"planUSDPerMillion,omitempty"`
	Last      []counterDocument `json:"last,omitempty"`
}

type counterDocument struct {
	Process string `json:"process"`
	Prompt  int64  `json:"promptTokens"`
	Output  int64  `json:"outputTokens"`
}

// Encode returns the ledger as JSON. Equal ledgers have equal bytes.
func (l *Ledger) Encode() ([]byte, error) {
	out := document{Version: version, Seen: l.Seen.UTC().Round(0), Gone: map[string]time.Time{}, GoneLaunched: map[string]time.Time{}}
	keys := map[Key]periods{}
	maps.Copy(keys, l.accounts)
	for _, r := range l.machines {
		if _, ok := keys[r.key]; !ok {
			keys[r.key] = nil
		}
	}
	index := map[Key]int{}
	for i, key := range sortedKeys(keys) {
		index[key] = i
		out.Accounts = append(out.Accounts, documentOf(&key, keys[key]))
	}
	for _, uid := range slices.Sorted(maps.Keys(l.machines)) {
		r := l.machines[uid]
		out.Machines = append(out.Machines, machineDocument{
			UID: uid, Account: index[r.key], State: r.state.String(), Served: r.served, From: r.from.UTC().Round(0), Millis: r.millis,
			Launched: r.launched.UTC().Round(0),
		})
	}
	for _, name := range slices.SortedFunc(maps.Keys(l.engines), Name.compare) {
		out.Engines = append(out.Engines, l.engines[name].document(name))
	}
	for uid, e := range l.gone {
		out.Gone[uid] = e.at.UTC().Round(0)
		if !e.launched.IsZero() {
			out.GoneLaunched[uid] = e.launched.UTC().Round(0)
		}
	}
	data, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encoding a cost ledger: %w", err)
	}
	return data, nil
}

func (n Name) compare(other Name) int {
	if order := strings.Compare(n.Namespace, other.Namespace); order != 0 {
		return order
	}
	return strings.Compare(n.Workspace, other.Workspace)
}

func documentOf(key *Key, account periods) accountDocument {
	out := accountDocument{
		Namespace: key.Namespace, Workspace: key.Workspace, Labels: key.Labels, InstanceType: key.InstanceType,
		CapacityType: key.CapacityType, Price: key.Price, Source: key.Source, Periods: map[string]Cells{},
	}
	for label, cells := range account {
		if *cells != (Cells{}) {
			out.Periods[label] = *cells
		}
	}
	return out
}

func (e *engine) document(name Name) engineDocument {
	out := engineDocument{Namespace: name.Namespace, Workspace: name.Workspace, Plan: e.plan}
	for _, c := range e.last {
		out.Last = append(out.Last, counterDocument{Process: c.Incarnation, Prompt: c.Prompt, Output: c.Output})
	}
	return out
}

// VersionError means that another version of the program wrote the ledger.
type VersionError struct{ Version int }

// Error names the versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("decoding a cost ledger: its version is %d, and this program reads version %d", e.Version, version)
}

// versionOf returns the version of an encoded ledger; 0 if it has none.
func versionOf(data []byte) int {
	var in struct {
		Version int `json:"version"`
	}
	if json.Unmarshal(data, &in) != nil {
		return 0
	}
	return in.Version
}

// Decode reads a ledger. It refuses anything that Encode does not write: a damaged ledger must not look like an empty
// one.
func Decode(data []byte) (*Ledger, error) {
	if newer := versionOf(data); newer > version { // it may have unknown fields
		return nil, &VersionError{Version: newer}
	}
	var in document
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return nil, fmt.Errorf("decoding a cost ledger: %w", err)
	}
	if decoder.More() {
		return nil, errors.New("decoding a cost ledger: it has trailing data")
	}
	if in.Version != version {
		return nil, &VersionError{Version: in.Version}
	}
	out := New()
	out.Seen, out.steady = in.Seen, in.Seen
	for uid, at := range in.Gone {
		out.gone[uid] = &ended{at: at, launched: in.GoneLaunched[uid], age: max(in.Seen.Sub(at), 0)}
	}
	keys, err := out.readAccounts(in.Accounts)
	if err == nil {
		err = out.readMachines(in.Machines, keys)
	}
	if err == nil {
		err = out.readEngines(in.Engines)
	}
	if err != nil {
		return nil, fmt.Errorf("decoding a cost ledger: %w", err)
	}
	return out, nil
}

func (l *Ledger) readAccounts(in []accountDocument) ([]Key, error) {
	keys := make([]Key, len(in))
	for i := range in {
		a := &in[i]
		keys[i] = Key{
			Namespace: a.Namespace, Workspace: a.Workspace, Labels: a.Labels, InstanceType: a.InstanceType,
			CapacityType: a.CapacityType, Price: a.Price, Source: a.Source,
		}
		if a.Price < Unpriced || a.Price > mostPrice {
			return nil, fmt.Errorf("account %d has the price %d", i, a.Price)
		}
		if _, isTwice := l.accounts[keys[i]]; isTwice {
			return nil, fmt.Errorf("account %d appears twice", i)
		}
		account := periods{}
		for label, cells := range a.Periods {
			if _, _, ok := Period(label); !ok {
				return nil, fmt.Errorf("account %d has the period %q", i, label)
			}
			if !cells.isValid() {
				return nil, fmt.Errorf("account %d has a negative amount in period %q", i, label)
			}
			cells.bound()
			account[label] = &cells
		}
		l.accounts[keys[i]] = account
	}
	return keys, nil
}

func (l *Ledger) readMachines(in []machineDocument, keys []Key) error {
	for i := range in {
		m := &in[i]
		state := slices.IndexFunc(States(), func(s State) bool { return s.String() == m.State })
		if state < 0 || State(state) == Wasted || m.UID == "" || m.Millis < 0 || m.Account < 0 || m.Account >= len(keys) {
			return fmt.Errorf("machine %d cannot be read", i)
		}
		if l.machines[m.UID] != nil {
			return fmt.Errorf("machine %d appears twice", i)
		}
		l.machines[m.UID] = &record{
			key: keys[m.Account], state: State(state), served: m.Served, from: m.From, millis: m.Millis, launched: m.Launched,
		}
	}
	return nil
}

func (l *Ledger) readEngines(in []engineDocument) error {
	for i := range in {
		e := &engine{plan: in[i].Plan}
		for _, c := range in[i].Last {
			if c.Prompt < 0 || c.Output < 0 {
				return fmt.Errorf("engine %d has a negative counter", i)
			}
			e.last = append(e.last, Counters{Incarnation: c.Process, Prompt: c.Prompt, Output: c.Output})
		}
		l.engines[Name{in[i].Namespace, in[i].Workspace}] = e
	}
	return nil
}

func (c *Cells) isValid() bool {
	for _, s := range States() {
		if a := c.Of(s); a.Millis < 0 || a.Nanos < 0 {
			return false
		}
	}
	return c.Unsure >= 0 && c.Prompt >= 0 && c.Output >= 0
}
