// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package speed_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engineprobe"
	"github.com/modelberth/modelberth/pkg/evidence/speed"
)

func began() time.Time { return time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC) }

// probed returns a Workspace whose engine was probed.
func probed(name string) *v1beta1.Workspace {
	ws := &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID(name)}}
	ws.Status.Engine = &v1beta1.EngineStatus{Revision: name + "-1"}
	return ws
}

// world is a Meter with one engine, which serves when a test calls serve.
type world struct {
	meter *speed.Meter
	ws    *v1beta1.Workspace
	pod   types.UID
	now   time.Time
	sums  engineprobe.Speed
	// asked counts the requested passes.
	asked int
}

func newWorld() *world {
	w := &world{meter: speed.NewMeter(), ws: probed("chat"), pod: "pod-1", now: began(), sums: engineprobe.Speed{Started: 1}}
	w.meter.Due = func(types.NamespacedName) { w.asked++ }
	return w
}

// serve makes the engine serve a number of requests at once for some time. Each token takes millis ms, and each request
// has 800 prompt tokens and 200 output tokens.
func (w *world) serve(length time.Duration, inFlight, millis float64) {
	seconds := length.Seconds() * inFlight
	tokens := seconds / millis * 1e3
	w.now = w.now.Add(length)
	w.sums.Running = inFlight
	w.sums.TokenTime.Seconds += seconds
	w.sums.TokenTime.Count += tokens
	w.sums.Prompt.Requests += tokens / 200
	w.sums.Output.Requests += tokens / 200
	w.sums.Prompt.Tokens += tokens / 200 * 800
	w.sums.Output.Tokens += tokens
}

func (w *world) look() { w.meter.Note(w.ws, w.pod, w.now, &w.sums) }

// lesson returns the current lesson; zero if there is none.
func (w *world) lesson() v1beta1.EngineSpeed {
	found, _ := w.meter.Of(w.ws.UID, w.pod)
	return found
}

// looks makes n readings, 15 seconds apart, of an engine with 8 requests at once and 30 ms per token. It calls change
// before each.
func (w *world) looks(n int, change func(i int, w *world)) {
	for i := range n {
		w.serve(15*time.Second, 8, 30)
		if change != nil {
			change(i, w)
		}
		w.look()
	}
}

// TestLessons: a lesson needs steady work of one process, and enough of it.
func TestLessons(t *testing.T) {
	const none, thirty = "", "30.000"
	for _, tc := range []struct {
		reason string
		run    func(*world)
		want   string
	}{
		{"one reading says nothing", func(w *world) { w.looks(1, nil) }, none},
		// In 15 seconds, there are 4,000 tokens of 20 requests, which make one sample.
		{"nine samples are too few", func(w *world) { w.looks(10, nil) }, none},
		{"ten samples are enough", func(w *world) { w.looks(11, nil) }, thirty},
		{"looks of the cost ledger, five minutes apart", func(w *world) {
			for range 11 {
				w.serve(5*time.Minute, 8, 30)
				w.look()
			}
		}, thirty},
		{"looks too far apart", func(w *world) {
			for range 30 {
				w.serve(11*time.Minute, 8, 30)
				w.look()
			}
		}, none},
		{"two readers a second apart count once", func(w *world) {
			w.looks(11, func(_ int, w *world) { w.look(); w.now = w.now.Add(time.Second); w.look() })
		}, thirty},
		{"few requests fill no sample", func(w *world) {
			w.looks(30, func(_ int, w *world) { w.sums.Output.Requests = 5; w.sums.Prompt.Requests = 5 })
		}, none},
		{"a queue", func(w *world) { w.sums.Waiting = 1; w.looks(30, nil) }, none},
		{"nobody is served at the looks", func(w *world) { w.looks(30, func(_ int, w *world) { w.sums.Running = 0 }) }, none},
		{"pauses: a third of the requests in the mean", func(w *world) {
			w.looks(30, func(_ int, w *world) { w.sums.Running = 24 })
		}, none},
		{"bursts between the looks", func(w *world) { w.looks(30, func(_ int, w *world) { w.sums.Running = 4 }) }, none},
		{"a load that doubles between looks", func(w *world) {
			w.looks(30, func(i int, w *world) { w.sums.Running = float64(6 * (1 + i%2)) })
		}, none},
		{"one request more or less", func(w *world) {
			for i := range 60 {
				w.serve(15*time.Second, 1, 30)
				w.sums.Running = float64(1 + i%2)
				w.look()
			}
		}, thirty},
		{"another pod begins anew", func(w *world) { w.looks(11, nil); w.pod = "pod-2"; w.looks(5, nil) }, none},
		{"another process begins anew", func(w *world) { w.looks(11, nil); w.sums.Started = 2; w.looks(5, nil) }, none},
		{"sums that fell are those of another process", func(w *world) {
			w.looks(11, nil)
			w.sums.TokenTime = engineprobe.Sum{}
			w.looks(5, nil)
		}, none},
		{"a process without its start", func(w *world) { w.sums.Started = math.NaN(); w.looks(11, nil) }, thirty},
		{"an engine that reports no times", func(w *world) {
			w.looks(30, func(_ int, w *world) { w.sums.TokenTime = engineprobe.Sum{Seconds: math.NaN(), Count: math.NaN()} })
		}, none},
		{"infinite sums", func(w *world) { w.looks(30, func(_ int, w *world) { w.sums.TokenTime.Seconds = math.Inf(1) }) }, none},
		{"no number of requests", func(w *world) { w.looks(30, func(_ int, w *world) { w.sums.Running = math.NaN() }) }, none},
		{"prompts of no tokens", func(w *world) { w.looks(30, func(_ int, w *world) { w.sums.Prompt.Tokens = 0 }) }, none},
		{"a stalled engine is in few samples", func(w *world) {
			w.looks(7, nil)
			w.serve(15*time.Second, 8, 300)
			w.looks(9, nil)
		}, thirty},
		{"a clock that goes back", func(w *world) { w.looks(7, nil); w.now = w.now.Add(-time.Hour); w.looks(6, nil) }, thirty},
		{"the newest samples count", func(w *world) {
			w.looks(11, nil)
			for range 20 {
				w.serve(15*time.Second, 8, 40)
				w.look()
			}
		}, "40.000"},
		{"of two loads in turn one counts", func(w *world) {
			for i := range 42 {
				busy := float64(i / 2 % 2)
				w.serve(15*time.Second, 8+32*busy, 30+30*busy)
				w.look()
			}
		}, thirty},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := newWorld()
			tc.run(w)
			if got := w.lesson().TimePerOutputToken; got != tc.want {
				t.Errorf("a token takes %q ms, want %q", got, tc.want)
			}
		})
	}
}

// TestLessonHasItsLoad compares a whole lesson.
func TestLessonHasItsLoad(t *testing.T) {
	w := newWorld()
	w.looks(11, nil)
	want := v1beta1.EngineSpeed{
		TimePerOutputToken: "30.000", Concurrency: 8, InputTokens: 800, OutputTokens: 200, Requests: 200, Tokens: 40_000,
		Time: metav1.NewTime(began().Add(165 * time.Second)),
	}
	if diff := cmp.Diff(want, w.lesson()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, ok := w.meter.Of(w.ws.UID, "another pod"); ok {
		t.Error("the lesson of one pod counts for another one")
	}
	if _, ok := w.meter.Of("another workspace", w.pod); ok {
		t.Error("the lesson of one Workspace counts for another one")
	}
}

// TestPassesForLessons: the Meter requests a pass while the status lacks the lesson, at most every five minutes, and
// never after that.
func TestPassesForLessons(t *testing.T) {
	w := newWorld()
	w.ws.Status.Engine = nil
	w.looks(40, nil)
	if w.asked != 0 {
		t.Errorf("%d passes before the engine was probed", w.asked)
	}
	w.ws = probed("chat")
	w.looks(40, nil) // ten minutes
	if w.asked != 2 {
		t.Errorf("%d passes in ten minutes without a write, want 2", w.asked)
	}
	stored := w.lesson()
	w.ws.Status.Engine.Speed = &stored
	w.looks(4*60*24*2, nil)
	if w.asked != 2 {
		t.Errorf("%d passes for a known lesson", w.asked-2)
	}
}

// TestMeterForgets: the Meter drops an engine without a reading for an hour.
func TestMeterForgets(t *testing.T) {
	w := newWorld()
	w.looks(11, nil)
	gone := w.ws.UID
	w.ws = probed("other")
	for range 7 {
		w.serve(8*time.Minute, 8, 30)
		w.look()
	}
	if _, ok := w.meter.Of(gone, w.pod); !ok {
		t.Error("an engine is dropped within an hour")
	}
	for range 10 {
		w.serve(8*time.Minute, 8, 30)
		w.look()
	}
	if _, ok := w.meter.Of(gone, w.pod); ok {
		t.Error("an engine without readings is kept")
	}
}

// TestIsDue: the first lesson is stored at once, and another one once a day if it differs.
func TestIsDue(t *testing.T) {
	stored := v1beta1.EngineSpeed{TimePerOutputToken: "30", Concurrency: 8, InputTokens: 800, OutputTokens: 200, Time: metav1.NewTime(began())}
	for _, tc := range []struct {
		reason string
		engine *v1beta1.EngineStatus
		change func(*v1beta1.EngineSpeed)
		after  time.Duration
		want   bool
	}{
		{"the engine was not probed", nil, func(*v1beta1.EngineSpeed) {}, 0, false},
		{"the first", &v1beta1.EngineStatus{}, func(*v1beta1.EngineSpeed) {}, 0, true},
		{"the same", &v1beta1.EngineStatus{Speed: &stored}, func(*v1beta1.EngineSpeed) {}, 48 * time.Hour, false},
		{"twice as slow on the same day", &v1beta1.EngineStatus{Speed: &stored}, func(s *v1beta1.EngineSpeed) { s.TimePerOutputToken = "60" }, 23 * time.Hour, false},
		{"twice as slow on the next day", &v1beta1.EngineStatus{Speed: &stored}, func(s *v1beta1.EngineSpeed) { s.TimePerOutputToken = "60" }, 24 * time.Hour, true},
		{"a little slower", &v1beta1.EngineStatus{Speed: &stored}, func(s *v1beta1.EngineSpeed) { s.TimePerOutputToken = "32" }, 48 * time.Hour, false},
		{"another load", &v1beta1.EngineStatus{Speed: &stored}, func(s *v1beta1.EngineSpeed) { s.Concurrency = 16 }, 48 * time.Hour, true},
		{"longer prompts", &v1beta1.EngineStatus{Speed: &stored}, func(s *v1beta1.EngineSpeed) { s.InputTokens = 1600 }, 48 * time.Hour, true},
		{"the clock of a former leader was a year ahead", &v1beta1.EngineStatus{Speed: &stored}, func(s *v1beta1.EngineSpeed) { s.Concurrency = 16 }, -365 * 24 * time.Hour, true},
		{"somebody wrote nonsense", &v1beta1.EngineStatus{Speed: &v1beta1.EngineSpeed{TimePerOutputToken: "fast"}}, func(*v1beta1.EngineSpeed) {}, 0, true},
	} {
		found := stored
		tc.change(&found)
		if got := speed.IsDue(tc.engine, &found, began().Add(tc.after)); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.reason, got, tc.want)
		}
	}
}

// TestMillis: a lesson in a status counts only if a Meter may have made it.
func TestMillis(t *testing.T) {
	good := v1beta1.EngineSpeed{TimePerOutputToken: "30.5", Concurrency: 8, InputTokens: 800, OutputTokens: 200, Requests: 100, Tokens: 10_000}
	for _, tc := range []struct {
		reason string
		change func(*v1beta1.EngineSpeed)
		want   bool
	}{
		{"good", func(*v1beta1.EngineSpeed) {}, true},
		{"no number", func(s *v1beta1.EngineSpeed) { s.TimePerOutputToken = "NaN" }, false},
		{"infinite", func(s *v1beta1.EngineSpeed) { s.TimePerOutputToken = "+Inf" }, false},
		{"empty", func(s *v1beta1.EngineSpeed) { s.TimePerOutputToken = "" }, false},
		{"below zero", func(s *v1beta1.EngineSpeed) { s.TimePerOutputToken = "-30" }, false},
		{"no requests at once", func(s *v1beta1.EngineSpeed) { s.Concurrency = 0 }, false},
		{"too many at once", func(s *v1beta1.EngineSpeed) { s.Concurrency = math.MaxInt32 }, false},
		{"no prompt", func(s *v1beta1.EngineSpeed) { s.InputTokens = -1 }, false},
		{"no answer", func(s *v1beta1.EngineSpeed) { s.OutputTokens = 0 }, false},
		{"too few requests", func(s *v1beta1.EngineSpeed) { s.Requests = 99 }, false},
		{"too few tokens", func(s *v1beta1.EngineSpeed) { s.Tokens = 9_999 }, false},
	} {
		found := good
		tc.change(&found)
		if _, got := speed.Millis(&found); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.reason, got, tc.want)
		}
	}
}

// FuzzMeter: whatever an engine reports, Millis accepts each lesson of the Meter.
func FuzzMeter(f *testing.F) {
	f.Add(8.0, 30.0, 200.0, 800.0, 15.0)
	f.Add(1e300, 1e-300, math.Inf(1), math.NaN(), 1e9)
	f.Fuzz(func(t *testing.T, inFlight, millis, out, in, every float64) {
		w := newWorld()
		for range 30 {
			w.now = w.now.Add(time.Duration(math.Min(math.Abs(every), 1e6) * float64(time.Second)))
			w.sums.Running = inFlight
			w.sums.TokenTime.Seconds += every * inFlight
			w.sums.TokenTime.Count += every * inFlight / millis * 1e3
			w.sums.Output.Requests += every * inFlight / millis * 1e3 / out
			w.sums.Output.Tokens += every * inFlight / millis * 1e3
			w.sums.Prompt.Tokens += every * inFlight / millis * 1e3 / out * in
			w.look()
		}
		found, ok := w.meter.Of(w.ws.UID, w.pod)
		if !ok {
			return
		}
		got, credible := speed.Millis(&found)
		if !credible || strconv.FormatFloat(got, 'f', 3, 64) != found.TimePerOutputToken {
			t.Errorf("lesson %+v is not read back", found)
		}
	})
}

// BenchmarkMeter prints the cost of a reading of an engine, and the memory that the Meter keeps for it.
func BenchmarkMeter(b *testing.B) {
	w := newWorld()
	w.looks(50, nil)
	all := make([]*v1beta1.Workspace, 1000)
	for i := range all {
		all[i] = probed(fmt.Sprint("chat-", i))
	}
	b.ReportAllocs()
	for b.Loop() {
		w.serve(15*time.Second, 8, 30)
		for _, ws := range all {
			w.meter.Note(ws, w.pod, w.now, &w.sums)
		}
	}
}
