// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Workspaces of namespace a, and one of another namespace.
var (
	ws1 = Asker{"ws-1", "a"}
	ws2 = Asker{"ws-2", "a"}
	ws9 = Asker{"ws-9", "b"}
)

// refused returns an attempt at the request that began and ended at these minutes.
func refused(started, ended int, cause Cause, scope Scope, cooldown time.Duration) Attempt {
	return Attempt{
		Offering: asked, Started: minute(started), Ended: minute(ended), Cause: cause, Scope: scope, Cooldown: cooldown,
	}
}

func got(started, ended int) Attempt {
	return Attempt{Offering: asked, Started: minute(started), Ended: minute(ended)}
}

func minute(m int) time.Time { return created.Add(time.Duration(m) * time.Minute) }

func TestCooldowns(t *testing.T) {
	const hour = 60
	out := func(started, ended int) Attempt {
		return refused(started, ended, NoCapacity, sku(Any), time.Hour)
	}
	unready := func(started, ended int) Attempt {
		return refused(started, ended, NeverRegistered, sku(onDemand), 30*time.Minute)
	}
	spotLoss := func(started, ended int) Attempt {
		a := refused(started, ended, Lost, offering("", spot), 10*time.Minute)
		a.Offering.CapacityType = spot
		return a
	}
	other := Offering{InstanceType: "small", Family: "fam", CapacityType: onDemand}
	type answer struct {
		Until int // minutes; 0 if the offer is not excluded
		Cause Cause
	}
	tests := []struct {
		reason   string
		attempts []Attempt
		now      int
		offering Offering
		want     answer
	}{
		{"nothing is known", nil, 0, asked, answer{}},
		{"a refusal counts from its end", []Attempt{out(0, 2)}, 3, asked, answer{2 + hour, NoCapacity}},
		{"and ends", []Attempt{out(0, 2)}, 2 + hour, asked, answer{}},
		{"another machine type is free", []Attempt{out(0, 2)}, 3, other, answer{}},
		{
			"another of the family is not, when the family is out",
			[]Attempt{refused(0, 2, Quota, family(onDemand), time.Hour)},
			3, other,
			answer{2 + hour, Quota},
		},
		{
			"on-demand quota says nothing about spot",
			[]Attempt{refused(0, 2, Quota, family(onDemand), time.Hour)},
			3,
			Offering{InstanceType: "small", Family: "fam", CapacityType: spot},
			answer{},
		},
		{
			"all spot",
			[]Attempt{refused(0, 2, Quota, everything(spot), time.Hour)},
			3,
			Offering{InstanceType: "other", Zone: "z", CapacityType: spot},
			answer{2 + hour, Quota},
		},
		{
			"a zone that is out does not rule out the choice of any zone",
			[]Attempt{refused(0, 2, NoCapacity, offering("z-1", Any), time.Hour)},
			3, asked,
			answer{},
		},
		{
			"nor another zone",
			[]Attempt{refused(0, 2, NoCapacity, offering("z-1", Any), time.Hour)},
			3,
			Offering{InstanceType: "big", Zone: "z-2", CapacityType: spot},
			answer{},
		},
		{
			"but that zone, for both capacity types",
			[]Attempt{refused(0, 2, NoCapacity, offering("z-1", Any), time.Hour)},
			3,
			Offering{InstanceType: "big", Zone: "z-1", CapacityType: spot},
			answer{2 + hour, NoCapacity},
		},
		{
			"the longest of several holds",
			[]Attempt{out(0, 2), refused(0, 2, Quota, family(onDemand), 10*time.Minute)},
			3, asked,
			answer{2 + hour, NoCapacity},
		},
		{"an attempt that goes on is no refusal", []Attempt{{Offering: asked, Started: minute(0), Cause: NoCapacity, Scope: sku(Any), Cooldown: time.Hour}}, 1, asked, answer{}},
		{"what is misconfigured for one is not for others", []Attempt{refused(0, 2, Misconfigured, everything(Any), 0)}, 3, asked, answer{}},
		{
			"nor does it count among refusals", []Attempt{
				refused(0, 2, Misconfigured, everything(Any), 0), refused(5, 7, Quota, everything(Any), 10*time.Minute),
			}, 8, asked, answer{17, Quota},
		},
		{"refused again after the cooldown: twice as long", []Attempt{out(0, 2), out(70, 72)}, 73, asked, answer{72 + 2*hour, NoCapacity}},
		{"and again", []Attempt{out(0, 2), out(70, 72), out(200, 201)}, 202, asked, answer{201 + 4*hour, NoCapacity}},
		{"but no longer than the cap", []Attempt{out(0, 2), out(70, 72), out(200, 201), out(500, 501)}, 502, asked, answer{501 + 4*hour, NoCapacity}},
		{
			"a cooldown that starts above the cap stays", []Attempt{
				refused(0, 2, NotOffered, sku(onDemand), 23*time.Hour), refused(24*hour, 24*hour+1, NotOffered, sku(onDemand), 23*time.Hour),
			}, 25 * hour, asked, answer{24*hour + 1 + 23*hour, NotOffered},
		},
		{
			"200 Workspaces that are refused at once are one refusal",
			[]Attempt{out(0, 2), out(0, 3), out(1, 4), out(1, 4)},
			5, asked,
			answer{4 + hour, NoCapacity},
		},
		{"so is the extra attempt after a restart", []Attempt{out(0, 2), out(30, 32)}, 33, asked, answer{32 + hour, NoCapacity}},
		{"a refusal is forgotten after a day", []Attempt{out(0, 2), out(27*hour, 27*hour+1)}, 27*hour + 2, asked, answer{28*hour + 1, NoCapacity}},
		{"a success in between starts anew", []Attempt{out(0, 2), got(70, 75), out(80, 81)}, 82, asked, answer{81 + hour, NoCapacity}},
		{"a success ends a cooldown: it is there again", []Attempt{out(0, 2), got(10, 15)}, 16, asked, answer{}},
		{"a success that took no time, in the minute of the refusal, does not", []Attempt{out(0, 2), got(2, 2)}, 16, asked, answer{2 + hour, NoCapacity}},
		{"a success that was asked for before the refusal does not", []Attempt{out(0, 2), got(1, 15)}, 16, asked, answer{2 + hour, NoCapacity}},
		{"the first node that never joins is forgiven", []Attempt{unready(0, 20)}, 20, asked, answer{}},
		{"the second is not", []Attempt{unready(0, 20), unready(20, 40)}, 41, asked, answer{70, NeverRegistered}},
		{
			"nor is it where two Workspaces take turns, so that one is always under way when another one is refused",
			[]Attempt{unready(0, 20), unready(10, 30), unready(20, 40)},
			41, asked,
			answer{70, NeverRegistered},
		},
		{"several that never joined at once are forgiven", []Attempt{unready(0, 20), unready(10, 30)}, 30, asked, answer{}},
		{"nor the third, for twice as long", []Attempt{unready(0, 20), unready(20, 40), unready(70, 90)}, 91, asked, answer{150, NeverRegistered}},
		{
			"a machine that vanished is replaced at once",
			[]Attempt{refused(0, 500, Lost, offering("", onDemand), time.Minute)},
			500, asked,
			answer{},
		},
		{
			"an evicted spot machine waits",
			[]Attempt{spotLoss(0, 500)},
			501,
			Offering{InstanceType: "big", Family: "fam", CapacityType: spot},
			answer{510, Lost},
		},
		{
			"one that keeps being evicted waits longer",
			[]Attempt{spotLoss(0, 500), spotLoss(510, 600)},
			601,
			Offering{InstanceType: "big", Family: "fam", CapacityType: spot},
			answer{620, Lost},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			until, cause, ok := NewCooldowns(test.attempts).Active(minute(test.now), ws1, test.offering)
			answered := answer{Cause: cause}
			if ok {
				answered.Until = int(until.Sub(created) / time.Minute)
			}
			if diff := cmp.Diff(test.want, answered); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEveryCapacityTypeGetsItsTurn: a message that does not name the capacity type must not exclude on-demand machines
// because spot is refused again and again.
func TestEveryCapacityTypeGetsItsTurn(t *testing.T) {
	const hour = 60
	of := func(capacityType v1beta1.CapacityType, started, ended int) Attempt {
		a := refused(started, ended, NoCapacity, sku(Any), time.Hour)
		a.Offering.CapacityType = capacityType
		return a
	}
	tests := []struct {
		reason         string
		attempts       []Attempt
		spot, onDemand int // minutes until when they are excluded; 0 if they are not
	}{
		{"it is refused: nobody knows of the other one", []Attempt{of(spot, 0, 2)}, 2 + hour, 2 + hour},
		{"others that were under way are the same refusal", []Attempt{of(spot, 0, 2), of(spot, 1, 3)}, 3 + hour, 3 + hour},
		{"it is refused again: the other one has its turn", []Attempt{of(spot, 0, 2), of(spot, 70, 72)}, 72 + 2*hour, 0},
		{"which is refused, too", []Attempt{of(spot, 0, 2), of(spot, 70, 72), of(onDemand, 73, 75)}, 72 + 2*hour, 75 + 2*hour},
		{"and again", []Attempt{of(spot, 0, 2), of(spot, 70, 72), of(spot, 200, 201)}, 201 + 4*hour, 0},
		{"a day later nobody knows", []Attempt{of(spot, 0, 2), of(spot, 70, 72), of(spot, 30*hour, 30*hour)}, 31 * hour, 31 * hour},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			now := test.attempts[len(test.attempts)-1].Ended
			for capacityType, want := range map[v1beta1.CapacityType]int{spot: test.spot, onDemand: test.onDemand} {
				offer := asked
				offer.CapacityType = capacityType
				until, _, ok := NewCooldowns(test.attempts).Active(now, ws1, offer)
				if left := int(until.Sub(created) / time.Minute); ok != (want > 0) || ok && left != want {
					t.Errorf("%s is left alone: %v, until minute %d; want %d", capacityType, ok, left, want)
				}
			}
		})
	}
}

// TestGuessesStayInTheirNamespace: a request that can never fit must not exclude existing capacity for others, and
// never for another namespace.
func TestGuessesStayInTheirNamespace(t *testing.T) {
	guess := func(who Asker, started, ended int) Attempt {
		a := refused(started, ended, NoCapacity, offering("", onDemand), time.Minute)
		a.Asker, a.Guessed = who, true
		return a
	}
	all := func(who Asker) []Attempt { // requested again as soon as the cooldown ends
		var out []Attempt
		for at := range 120 {
			if _, _, ok := NewCooldowns(out).Active(minute(at), who, asked); !ok {
				out = append(out, guess(who, at, at))
			}
		}
		return out
	}
	named := refused(0, 2, NoCapacity, offering("", onDemand), time.Hour)
	named.Asker = ws1
	var flood []Attempt
	for at := range 60 { // two Workspaces of one namespace are refused over and over
		flood = append(flood, guess(ws1, at, at), guess(ws2, at, at))
	}
	tests := []struct {
		reason                string
		attempts              []Attempt
		now                   int
		one, both, everywhere int // minutes of exclusion for ws-1, for ws-3 in its namespace and for ws-9 elsewhere
	}{
		{"a guess is its own Workspace's", []Attempt{guess(ws1, 0, 2)}, 2, 3, 0, 0},
		{"and grows for it to no more than ten times", all(ws1), 119, 125, 0, 0},
		{"a guess of the same namespace confirms it there", []Attempt{guess(ws1, 0, 2), guess(ws2, 1, 3)}, 3, 4, 4, 0},
		{"one of another namespace confirms nothing", []Attempt{guess(ws1, 0, 2), guess(ws9, 1, 3)}, 2, 3, 0, 4},
		{"a tenant that is refused over and over stops only itself", flood, 59, 61, 61, 0},
		{"an old one does not", []Attempt{guess(ws1, 0, 2), guess(ws2, 70, 71)}, 71, 0, 0, 0},
		{"its own does not", []Attempt{guess(ws1, 0, 2), guess(ws1, 3, 4)}, 4, 6, 0, 0},
		{"a machine in between clears the suspicion", []Attempt{guess(ws1, 0, 2), got(3, 4), guess(ws2, 5, 6)}, 6, 0, 0, 0},
		{"clear words need nobody else's", []Attempt{named}, 3, 62, 62, 62},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			cooldowns := NewCooldowns(test.attempts)
			for who, want := range map[Asker]int{ws1: test.one, {"ws-3", "a"}: test.both, ws9: test.everywhere} {
				until, _, ok := cooldowns.Active(minute(test.now), who, asked)
				if left := int(until.Sub(created) / time.Minute); ok != (want > 0) || ok && left != want {
					t.Errorf("%s leaves it alone: %v, until minute %d; want %d", who.Workspace, ok, left, want)
				}
			}
		})
	}
}

// TestCredible: after a clock is corrected, an attempt with a wrong date must not count for years, or hide the others.
func TestCredible(t *testing.T) {
	now := minute(60)
	past := refused(50, 55, Quota, sku(onDemand), time.Hour)
	slack := refused(60, 64, Quota, family(onDemand), time.Hour)
	far := refused(5*365*24*60, 5*365*24*60, NoCapacity, sku(spot), time.Hour)
	attempts := []Attempt{past, far, slack}
	if diff := cmp.Diff([]Attempt{past, slack}, Credible(attempts, now)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if attempts[1] != far {
		t.Error("the attempts that were asked about were changed")
	}
	if got := len(NewCooldowns(Credible(attempts, now)).List(now)); got != 2 {
		t.Errorf("%d cooldowns, want 2", got)
	}
}

func TestCooldownsList(t *testing.T) {
	cooldowns := NewCooldowns([]Attempt{
		refused(0, 2, Quota, family(onDemand), time.Hour),
		refused(0, 2, NoCapacity, offering("z-1", Any), time.Minute),
		refused(0, 2, NoCapacity, sku(Any), time.Hour), refused(70, 72, NoCapacity, sku(Any), time.Hour),
	})
	type row struct {
		Scope    string
		Cause    Cause
		Until    time.Time
		Refusals int
	}
	list := func(now time.Time) []row {
		var rows []row
		for _, c := range cooldowns.List(now) {
			rows = append(rows, row{c.Scope.String(), c.Cause, c.Until, c.Refusals})
		}
		return rows
	}
	want := []row{
		{"family/fam/*/on-demand", Quota, minute(62), 1},
		{"sku/big/*/*", NoCapacity, minute(62), 1},
		{"sku/big/*/on-demand", NoCapacity, minute(192), 2},
	}
	if diff := cmp.Diff(want, list(minute(3))); diff != "" {
		t.Errorf("active (-want +got):\n%s", diff)
	}
	if rest := list(minute(192)); rest != nil {
		t.Errorf("active at the end: %v", rest)
	}
}

// randomAttempts returns attempts of many Workspaces at few offerings.
func randomAttempts(random *rand.Rand) []Attempt {
	workspaces := []Asker{ws1, ws2, ws9}
	causes := []Cause{None, NoCapacity, Quota, NeverRegistered, Lost, Misconfigured}
	attempts := make([]Attempt, 1+random.IntN(12))
	for i := range attempts {
		o := randomOffering(random)
		breadth := []Breadth{OneOffering, SKU, Family, Everything}[random.IntN(4)]
		started := created.Add(time.Duration(random.IntN(10*24*60)) * time.Minute)
		attempts[i] = Attempt{
			Asker: workspaces[random.IntN(len(workspaces))], Guessed: random.IntN(3) == 0,
			Offering: o, Started: started, Ended: started.Add(time.Duration(random.IntN(90)-1) * time.Minute),
			Cause: causes[random.IntN(len(causes))], Scope: scopeOf(breadth, OfAccount, o),
			Cooldown: time.Duration(random.IntN(120)) * time.Minute,
		}
		if i > 0 && random.IntN(4) == 0 {
			attempts[i] = attempts[random.IntN(i)] // learned twice
		}
		if random.IntN(10) == 0 {
			attempts[i].Ended = time.Time{}
		}
	}
	return attempts
}

func randomOffering(random *rand.Rand) Offering {
	return Offering{
		InstanceType: []string{"big", "small"}[random.IntN(2)],
		Family:       []string{"fam", ""}[random.IntN(2)],
		Zone:         []string{"", "z-1", "z-2"}[random.IntN(3)],
		CapacityType: []v1beta1.CapacityType{onDemand, spot}[random.IntN(2)],
	}
}

// TestOrderOfLearningDoesNotMatter: the same attempts yield the same memory, in any order and with any repetition.
func TestOrderOfLearningDoesNotMatter(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		attempts := randomAttempts(random)
		now := created.Add(time.Duration(random.IntN(11*24*60)) * time.Minute)
		whole := NewCooldowns(attempts)
		want := whole.List(now)

		shuffled := append([]Attempt{}, attempts...)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for reason, c := range map[string]*Cooldowns{
			"shuffled": NewCooldowns(shuffled), "twice": NewCooldowns(append(shuffled, attempts...)),
		} {
			if diff := cmp.Diff(want, c.List(now), cmp.AllowUnexported(Cooldown{})); diff != "" {
				t.Fatalf("seed %d, %s (-want +got):\n%s", seed, reason, diff)
			}
		}

		// Active and List agree, and every cooldown belongs to a refused attempt.
		o := randomOffering(random)
		asker := []Asker{ws1, ws2, ws9}[random.IntN(3)]
		until, _, ok := whole.Active(now, asker, o)
		var longest time.Time
		for _, c := range want {
			if c.Scope.Covers(o) && (c.Asker == Asker{} || c.Asker == asker || c.Asker == Asker{Namespace: asker.Namespace}) && c.Until.After(longest) {
				longest = c.Until
			}
			if limit := max(MaxCooldown, 2*time.Hour); c.Until.Sub(c.refusedAt) > limit+90*time.Minute {
				t.Fatalf("seed %d: %v is left alone for %s", seed, c.Scope, c.Until.Sub(c.refusedAt))
			}
		}
		if ok != !longest.IsZero() || !until.Equal(longest) {
			t.Fatalf("seed %d: Active says %v %v, List %v", seed, until, ok, longest)
		}
	}
}

// TestEscalateSuspectsTheRequest: if machines of every type vanish, the request itself may be too large.
func TestEscalateSuspectsTheRequest(t *testing.T) {
	now := Verdict{Cause: NoCapacity, Scope: offering("", onDemand), Cooldown: time.Minute, Message: "gone", Guessed: true, Final: true}
	words := now
	words.Fix = "look at the quota"
	suspected, both, named := now, words, now
	suspected.Fix, both.Fix = requestFix, "look at the quota; "+requestFix
	named.Guessed = false
	on := func(instanceType string, ended int, cause Cause, isGuessed bool) Attempt {
		return Attempt{
			Offering: Offering{InstanceType: instanceType}, Started: minute(0), Ended: minute(ended), Cause: cause, Guessed: isGuessed,
		}
	}
	small := on("small", 1, NoCapacity, true)
	tests := []struct {
		reason   string
		verdict  Verdict
		attempts []Attempt
		want     Verdict
	}{
		{"the first machine type", now, nil, now},
		{"the same again", now, []Attempt{on("big", 1, NoCapacity, true)}, now},
		{"a second machine type", now, []Attempt{small}, suspected},
		{"a second machine type, after this one", now, []Attempt{small, on("big", 2, NoCapacity, true)}, suspected},
		{"what the rule says to do stays", words, []Attempt{small}, both},
		{"a machine in between", now, []Attempt{small, on("tiny", 2, None, false)}, now},
		{"clear words in between", now, []Attempt{small, on("tiny", 2, Quota, false)}, now},
		{"clear words now", named, []Attempt{small}, named},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Escalate(test.verdict, test.attempts)); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEscalate(t *testing.T) {
	now := Verdict{Cause: NeverInitialized, Scope: sku(onDemand), Cooldown: time.Hour, Message: "no GPUs", Final: true}
	on := func(instanceType string, ended int, cause Cause) Attempt {
		return Attempt{Offering: Offering{InstanceType: instanceType}, Started: minute(0), Ended: minute(ended), Cause: cause}
	}
	mended := Verdict{
		Cause: Misconfigured, Scope: everything(Any), Message: "nodes of two machine types never advertised their GPUs; the first was small: no GPUs",
		Fix: "install a device plugin or GPU operator that tolerates the taint of these nodes", Final: true,
	}
	notFinal := now
	notFinal.Final = false
	lost := now
	lost.Cause = Lost
	tests := []struct {
		reason   string
		verdict  Verdict
		attempts []Attempt
		want     Verdict
	}{
		{"the first machine type", now, nil, now},
		{"the same machine type twice may be that machine type", now, []Attempt{on("big", 1, NeverInitialized)}, now},
		{"a second machine type is the cluster's fault", now, []Attempt{on("small", 1, NeverInitialized)}, mended},
		{"refusals in between change nothing", now, []Attempt{on("tiny", 3, NoCapacity), on("small", 1, NeverInitialized)}, mended},
		{"one that worked since clears the suspicion", now, []Attempt{on("small", 1, NeverInitialized), on("tiny", 2, None)}, now},
		{"one that worked before does not", now, []Attempt{on("tiny", 1, None), on("small", 2, NeverInitialized)}, mended},
		{"one that goes on does not", now, []Attempt{{Offering: Offering{InstanceType: "tiny"}}, on("small", 2, NeverInitialized)}, mended},
		{"somebody has mended it since", now, []Attempt{on("small", 1, NeverInitialized), on("tiny", 2, Misconfigured)}, now},
		{"not before it is final", notFinal, []Attempt{on("small", 1, NeverInitialized)}, notFinal},
		{"other causes are let be", lost, []Attempt{on("small", 1, NeverInitialized)}, lost},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Escalate(test.verdict, test.attempts)); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCooldownsKnowNodeClasses: a refusal that may come from a node class excludes nothing for users of another class.
// A limit of the account excludes the offer for all.
func TestCooldownsKnowNodeClasses(t *testing.T) {
	of := func(class string) Offering {
		return Offering{InstanceType: "big", Family: "fam", Zone: "z", CapacityType: onDemand, NodeClass: class}
	}
	refused := func(cause Cause, evidence Evidence, class string) Attempt {
		return Attempt{
			Offering: of(class), Started: created, Ended: created.Add(time.Minute), Cause: cause, Cooldown: time.Hour,
			Scope: scopeOf(SKU, evidence, of(class)),
		}
	}
	got := Attempt{Offering: of("a"), Started: created.Add(2 * time.Minute), Ended: created.Add(3 * time.Minute)}
	tests := []struct {
		reason   string
		attempts []Attempt
		want     map[string]bool
	}{
		{"no capacity in the zones of one", []Attempt{refused(NoCapacity, OfClass, "a")}, map[string]bool{"a": true, "b": false}},
		{"the image of one lacks a driver", []Attempt{refused(NeverInitialized, OfClass, "a")}, map[string]bool{"a": true, "b": false}},
		{"a quota is the account's", []Attempt{refused(Quota, OfAccount, "a")}, map[string]bool{"a": true, "b": true}},
		{"it is not sold to the account", []Attempt{refused(NotOffered, OfAccount, "a")}, map[string]bool{"a": true, "b": true}},
		{"nobody wrote down which", []Attempt{refused(NoCapacity, OfClass, "")}, map[string]bool{"a": true, "b": true}},
		{"a machine that came with one says nothing of another", []Attempt{refused(NoCapacity, OfClass, "b"), got}, map[string]bool{"a": false, "b": true}},
		{"but of the quota", []Attempt{refused(Quota, OfAccount, "b"), got}, map[string]bool{"a": false, "b": false}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			cooldowns := NewCooldowns(test.attempts)
			for class, want := range test.want {
				if _, _, is := cooldowns.Active(created.Add(5*time.Minute), ws1, of(class)); is != want {
					t.Errorf("with node class %s it is left alone: %t, want %t", class, is, want)
				}
			}
		})
	}
}

// TestZones covers the zones to avoid for a group after refusals.
func TestZones(t *testing.T) {
	in := func(zone string) Offering {
		return Offering{InstanceType: "big", Family: "fam", Zone: zone, CapacityType: onDemand, NodeClass: "a"}
	}
	out := func(zone string, minutes int, change ...func(*Attempt)) Attempt {
		a := Attempt{
			Asker: ws1, Offering: in(""), Started: created, Ended: created, Cause: NoCapacity, Cooldown: time.Duration(minutes) * time.Minute,
			Scope: scopeOf(OneOffering, OfClass, in(zone)),
		}
		for _, c := range change {
			c(&a)
		}
		return a
	}
	guessed := func(a *Attempt) { a.Guessed = true }
	others := func(a *Attempt) { a.Guessed, a.Asker = true, ws2 }
	elsewhere := func(a *Attempt) { a.Scope.NodeClass = "b" }
	small := func(a *Attempt) { a.Scope.Name = "small" }
	type answer struct {
		Avoid []string
		// Until is the end of the cooldown, in minutes, for a request limited to zones 1 and 2.
		Until int
	}
	for _, test := range []struct {
		reason   string
		attempts []Attempt
		want     answer
	}{
		{"nothing is known", nil, answer{}},
		{"one is out", []Attempt{out("1", 60)}, answer{Avoid: []string{"1"}}},
		{"both are, until the first is back", []Attempt{out("2", 60), out("1", 30)}, answer{Avoid: []string{"1", "2"}, Until: 30}},
		{"one is back", []Attempt{out("2", 60), out("1", 5)}, answer{Avoid: []string{"2"}}},
		{"wherever it was asked for says nothing of one zone", []Attempt{out("", 60)}, answer{}},
		{"nor do several", []Attempt{out("1,3", 60)}, answer{}},
		{"the two that are asked for were refused together", []Attempt{out("1,2", 60)}, answer{Until: 60}},
		{"a guess is one's own", []Attempt{out("1", 60, guessed)}, answer{Avoid: []string{"1"}}},
		{"and not another's", []Attempt{out("1", 60, others)}, answer{}},
		{"another node class has other zones", []Attempt{out("1", 60, elsewhere)}, answer{}},
		{"another machine type is out there", []Attempt{out("1", 60, small)}, answer{}},
	} {
		t.Run(test.reason, func(t *testing.T) {
			cooldowns, now := NewCooldowns(test.attempts), created.Add(10*time.Minute)
			got := answer{Avoid: cooldowns.Zones(now, ws1, in(""))}
			if until, _, isOut := cooldowns.Active(now, ws1, in("1,2")); isOut {
				got.Until = int(until.Sub(created).Minutes())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Zones, Active (-want +got):\n%s", diff)
			}
		})
	}
}
