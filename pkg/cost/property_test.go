// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost_test

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/modelberth/modelberth/pkg/cost"
)

// truth is a machine of the story, with the time that the cloud charges.
type truth struct {
	key      cost.Key
	launched time.Time
	serves   bool
	owned    bool
	charged  time.Duration
}

// story is a random world. Machines start, serve, stop and end, the clock jumps, and the controller restarts.
type story struct {
	random *rand.Rand
	real   time.Time
	jump   time.Duration
	there  map[string]*truth
	past   time.Duration
	next   int
}

func newStory(seed uint64) *story {
	return &story{random: rand.New(rand.NewPCG(seed, 7)), real: noon, there: map[string]*truth{}}
}

func (s *story) key() cost.Key {
	return cost.Key{
		Namespace: fmt.Sprintf("team-%d", s.random.IntN(3)), Workspace: fmt.Sprintf("model-%d", s.random.IntN(40)),
		InstanceType: "A", Price: int64(s.random.IntN(100_000_000)), Source: "NodeClaim",
	}
}

// pass advances the time, and returns the next observation.
func (s *story) pass() cost.Step {
	elapsed := time.Duration(s.random.Int64N(int64(time.Minute)))
	switch s.random.IntN(20) {
	case 0:
		elapsed = time.Duration(s.random.Int64N(int64(40 * 24 * time.Hour)))
	case 1, 2:
		elapsed = 0
	}
	elapsed = elapsed.Truncate(time.Millisecond)
	s.real = s.real.Add(elapsed)
	for _, m := range s.there {
		m.charged += elapsed
	}
	return cost.Step{At: s.real.Add(s.jump), Elapsed: elapsed}
}

// turn changes the world at the time of the observation.
func (s *story) turn(step *cost.Step) {
	for uid, m := range s.there {
		switch s.random.IntN(6) {
		case 0:
			s.past += m.charged
			delete(s.there, uid)
			continue
		case 1:
			m.serves = !m.serves
		case 2:
			m.owned = s.random.IntN(4) > 0
		}
		step.Machines = append(step.Machines, cost.Machine{
			UID: uid, Key: m.key, Owned: m.owned, Serving: m.serves, LaunchedAt: m.launched,
			Since: s.real.Add(-time.Duration(s.random.Int64N(int64(time.Hour)))),
		})
	}
	for range s.random.IntN(3) {
		s.next++
		uid := fmt.Sprint("machine-", s.next)
		m := &truth{key: s.key(), owned: true, launched: step.At}
		s.there[uid] = m
		step.Machines = append(step.Machines, cost.Machine{UID: uid, Key: m.key, Owned: true, LaunchedAt: step.At})
	}
}

func (s *story) charged() time.Duration {
	sum := s.past
	for _, m := range s.there {
		sum += m.charged
	}
	return sum
}

// TestTimeIsConserved compares the ledger with the time that the cloud charges, to the millisecond. Its random stories
// have jumps of the clock, restarts from the stored ledger, repeated observations, and shrinking ledgers.
func TestTimeIsConserved(t *testing.T) {
	for seed := range uint64(80) {
		s, l := newStory(seed), cost.New()
		l.Observe(cost.Step{At: s.real})
		for n := range 60 {
			if s.random.IntN(10) == 0 {
				s.jump = time.Duration(s.random.Int64N(int64(100*time.Hour))) - 50*time.Hour
			}
			step := s.pass()
			s.turn(&step)
			l.Observe(step)
			switch s.random.IntN(6) {
			case 0:
				l = again(t, l)
			case 1:
				step.Elapsed = 0
				before := encoded(t, l)
				l.Observe(step)
				if !bytes.Equal(before, encoded(t, l)) {
					t.Fatalf("seed %d, look %d: the same look again changes the ledger", seed, n)
				}
			case 2:
				const most = 20_000
				if data, err := l.Fit(most); err != nil || len(data) > most {
					t.Fatalf("seed %d, look %d: %d bytes, want %d at most (%v)", seed, n, len(data), most, err)
				}
			}
			if got := total(t, l); got.Millis != s.charged().Milliseconds() {
				t.Fatalf("seed %d, look %d: the ledger has %d ms, want %d", seed, n, got.Millis, s.charged().Milliseconds())
			}
		}
	}
}

// TestRestartsChangeNothing stores a ledger at some observations, and continues from it after later observations are
// lost. A machine that still exists is charged for all of its time, once.
func TestRestartsChangeNothing(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 9))
		l, at := cost.New(), noon
		l.Observe(cost.Step{At: at})
		stored := encoded(t, l)
		m := cost.Machine{UID: "a", Key: chat(), Owned: true, LaunchedAt: at}
		for range 40 {
			elapsed := time.Duration(random.IntN(600)) * time.Second
			at = at.Add(elapsed)
			step := cost.Step{At: at, Elapsed: elapsed, Machines: []cost.Machine{m}}
			switch random.IntN(4) {
			case 0: // the process was killed, and the next one starts from the stored ledger
				l = decoded(t, stored)
				step.Elapsed, step.Gap = l.Gap(at), true
			case 1:
				stored = encoded(t, l)
			}
			l.Observe(step)
		}
		if got, want := total(t, l).Millis, at.Sub(noon).Milliseconds(); got != want {
			t.Fatalf("seed %d: %d ms, want %d", seed, got, want)
		}
	}
}

// TestUnsureTimeIsCharged: the unsure time is a part of the charged time, in each account and period, and in each row of
// FOCUS. Machines end while no controller runs, for minutes or weeks, and ledgers are stored, shortened and merged.
func TestUnsureTimeIsCharged(t *testing.T) {
	found := int64(0)
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 11))
		l, at := cost.New(), noon
		l.Observe(cost.Step{At: at})
		there := map[string]cost.Machine{}
		for n := range 60 {
			elapsed := time.Duration(random.Int64N(int64(time.Minute)))
			step := cost.Step{Gap: random.IntN(3) == 0}
			if step.Gap {
				elapsed = time.Duration(random.Int64N(int64([]time.Duration{20 * time.Minute, 3 * time.Hour, 40 * 24 * time.Hour}[random.IntN(3)])))
				l = again(t, l)
			}
			at = at.Add(elapsed.Truncate(time.Millisecond))
			step.At, step.Elapsed = at, elapsed.Truncate(time.Millisecond)
			for uid, m := range there {
				if random.IntN(4) == 0 {
					delete(there, uid)
					continue
				}
				m.Serving = random.IntN(2) == 0
				step.Machines = append(step.Machines, m)
			}
			if random.IntN(2) == 0 {
				m := cost.Machine{UID: fmt.Sprint("machine-", n), Key: chat(), Owned: true, LaunchedAt: at}
				m.Key.Workspace = fmt.Sprint("model-", random.IntN(3))
				there[m.UID] = m
				step.Machines = append(step.Machines, m)
			}
			l.Observe(step)
			if random.IntN(10) == 0 {
				if _, err := l.Fit(3_000); err != nil {
					t.Fatal(err)
				}
			}
			found += checkUnsure(t, seed, l)
		}
		checkUnsure(t, seed, cost.Merged(l, "team-a", nil))
	}
	if found == 0 {
		t.Error("no story has unsure time")
	}
}

// checkUnsure returns the unsure time of a ledger.
func checkUnsure(t *testing.T, seed uint64, l *cost.Ledger) int64 {
	t.Helper()
	all, dated := int64(0), int64(0)
	charges := l.Charges(time.Time{})
	for _, c := range charges {
		if whole := c.Cells.Total().Millis; c.Cells.Unsure > whole {
			t.Fatalf("seed %d: %s has %d ms in %q, and %d ms of them are unsure", seed, c.Workspace, whole, c.Period, c.Cells.Unsure)
		}
		all += c.Cells.Unsure
		if c.Period != "" { // FOCUS omits the sum of all times before
			dated += c.Cells.Unsure
		}
	}
	var out bytes.Buffer
	if _, err := cost.WriteFOCUS(&out, charges); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	hours, unsure := slices.Index(rows[0], "ConsumedQuantity"), slices.Index(rows[0], "x_UnsureHours")
	sum := 0.0
	for _, row := range rows[1:] {
		whole, wholeErr := strconv.ParseFloat(row[hours], 64)
		part, err := strconv.ParseFloat(row[unsure], 64)
		if err != nil || wholeErr != nil || part > whole {
			t.Fatalf("seed %d: a row of %q hours has %q unsure ones", seed, row[hours], row[unsure])
		}
		sum += part
	}
	if want := float64(dated) / 3_600_000; math.Abs(sum-want) > 1e-6 {
		t.Fatalf("seed %d: the rows have %f unsure hours, want %f", seed, sum, want)
	}
	return all
}

// TestOldUnsureTimeIsBounded: a ledger of an earlier version, or one of which a part is subtracted, has no unsure time
// that nobody is charged for.
func TestOldUnsureTimeIsBounded(t *testing.T) {
	ledger := func(workspace string, charged, unsure int) *cost.Ledger {
		return decoded(t, fmt.Appendf(nil, `{"version":1,"seen":"2026-11-20T12:00:00Z","accounts":[{"namespace":"team-a","workspace":%q,`+
			`"microUSDPerHour":0,"periods":{"2026-11":{"serving":{"ms":%d},"unsureMs":%d}}}]}`, workspace, charged, unsure))
	}
	cases := []struct {
		reason string
		ledger *cost.Ledger
		want   int64
	}{
		{"an earlier version", ledger("chat", 900, 86_400), 900},
		{"sure time is subtracted", cost.Merged(ledger(cost.Others, 10, 5), "team-a", []*cost.Ledger{ledger("chat", 8, 0)}), 2},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			if got := checkUnsure(t, 0, c.ledger); got != c.want {
				t.Errorf("%d ms are unsure, want %d", got, c.want)
			}
		})
	}
}

// TestMoneyIsConserved: merging details for years loses no nanodollar.
func TestMoneyIsConserved(t *testing.T) {
	l := cost.New()
	at := noon
	l.Observe(cost.Step{At: at})
	want := int64(0)
	for day := range 1200 {
		at = at.Add(24 * time.Hour)
		key := chat()
		key.Workspace = fmt.Sprint("job-", day)
		l.Observe(cost.Step{At: at, Elapsed: 24 * time.Hour})
		l.Observe(cost.Step{At: at, Machines: []cost.Machine{{UID: fmt.Sprint(day), Key: key, Owned: true, LaunchedAt: at}}})
		at = at.Add(time.Hour)
		l.Observe(cost.Step{At: at, Elapsed: time.Hour})
		want += 3_600_000_000
		if got := total(t, l).Nanos; got != want {
			t.Fatalf("day %d: %d, want %d", day, got, want)
		}
		data, err := l.Fit(16_000)
		if err != nil || len(data) > 16_000 {
			t.Fatalf("day %d: %d bytes (%v)", day, len(data), err)
		}
	}
}

// TestEqualLedgersHaveEqualBytes encodes equal ledgers that were built in different orders.
func TestEqualLedgersHaveEqualBytes(t *testing.T) {
	var first []byte
	for range 20 {
		l := cost.New()
		l.Observe(cost.Step{At: noon})
		var machines []cost.Machine
		for n := range 30 {
			key := chat()
			key.Workspace = fmt.Sprint("model-", n%7)
			machines = append(machines, cost.Machine{UID: fmt.Sprint(n), Key: key, Owned: true, LaunchedAt: noon})
		}
		rand.Shuffle(len(machines), func(i, j int) { machines[i], machines[j] = machines[j], machines[i] })
		l.Observe(cost.Step{At: noon.Add(time.Hour), Elapsed: time.Hour, Machines: machines})
		l.Observe(cost.Step{At: noon.Add(time.Hour)})
		data := encoded(t, l)
		if first == nil {
			first = data
		}
		if !bytes.Equal(first, data) {
			t.Fatalf("%s\n%s", first, data)
		}
	}
}

// FuzzDecode decodes anything. An accepted ledger stays the same when it is encoded and decoded again, and can be used.
func FuzzDecode(f *testing.F) {
	s, l := newStory(1), cost.New()
	for range 5 {
		step := s.pass()
		s.turn(&step)
		l.Observe(step)
		l.Count(step.At, cost.Engine{Name: cost.Name{Namespace: "n", Workspace: "w"}, Key: chat(), Counters: []cost.Counters{{Incarnation: "a", Output: 7}}})
		f.Add(encoded(f, l))
	}
	f.Add([]byte("{}"))
	f.Add([]byte(`{"version":1,"seen":"0001-01-01T00:00:00Z","accounts":[{"microUSDPerHour":-1}],"machines":[{"uid":"a","account":0,"state":"idle"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := cost.Decode(data)
		if err != nil {
			return
		}
		first := encoded(t, l)
		if second := encoded(t, decoded(t, first)); !bytes.Equal(first, second) {
			t.Fatalf("%s\n%s", first, second)
		}
		l.Observe(cost.Step{At: noon, Elapsed: time.Hour, Gap: true, Machines: []cost.Machine{serving(0)}})
		l.Charges(time.Time{})
		if _, err := l.Fit(1000); err != nil {
			t.Fatal(err)
		}
	})
}

func encoded(t testing.TB, l *cost.Ledger) []byte {
	t.Helper()
	data, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func decoded(t testing.TB, data []byte) *cost.Ledger {
	t.Helper()
	l, err := cost.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// total returns the sum of all charges. None may be negative.
func total(t testing.TB, l *cost.Ledger) cost.Amount {
	t.Helper()
	var sum cost.Cells
	for _, charge := range l.Charges(time.Time{}) {
		for _, state := range cost.States() {
			if a := charge.Cells.Of(state); a.Millis < 0 || a.Nanos < 0 {
				t.Fatalf("%+v is negative", charge)
			}
		}
		sum.Add(&charge.Cells)
	}
	return sum.Total()
}
