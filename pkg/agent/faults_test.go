// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/pkg/hub"
)

// asIfWanted works like errors.As for tables: want is nil or new(*SomeError).
func asIfWanted(err error, want any) bool {
	if want == nil {
		return err == nil
	}
	return errors.As(err, want)
}

// watchName fails the test if path ever has a content other than want.
func watchName(t *testing.T, path string, want []byte) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var w sync.WaitGroup
	w.Go(func() {
		for {
			if got, err := os.ReadFile(path); err == nil && !bytes.Equal(got, want) {
				t.Errorf("%s was visible with %d wrong bytes", path, len(got))
				return
			}
			select {
			case <-done:
				return
			case <-time.After(200 * time.Microsecond):
			}
		}
	})
	return func() { close(done); w.Wait() }
}

// After any fault, the file is correct in the end, its name never has other content, and the agent fetches at most one
// percent of the received bytes again.
func TestTransientFaults(t *testing.T) {
	data := noise(8 << 20)
	size := int64(len(data))
	type fault = func(calls int64, w http.ResponseWriter, r *http.Request) (int64, bool)
	status := func(code int, header ...string) fault {
		return func(calls int64, w http.ResponseWriter, _ *http.Request) (int64, bool) {
			if calls > 3 {
				return noLimit, false
			}
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			return 0, true
		}
	}
	for _, tc := range []struct {
		reason string
		fault  fault
		idle   time.Duration // how long the hub may be silent
	}{
		{"500 three times", status(500), patient},
		{"503 three times", status(503), patient},
		{"429 with Retry-After 0", status(429, "Retry-After", "0"), patient},
		{"the connection is cut in the middle, every time", func(_ int64, _ http.ResponseWriter, r *http.Request) (int64, bool) {
			if isContent(r) {
				return size / 7, false
			}
			return noLimit, false
		}, patient},
		{"the connection is cut after one byte, ten times", func(calls int64, _ http.ResponseWriter, r *http.Request) (int64, bool) {
			if isContent(r) && calls < 14 {
				return 1, false
			}
			return noLimit, false
		}, patient},
		{"the connection is cut before any answer", func(calls int64, _ http.ResponseWriter, _ *http.Request) (int64, bool) {
			if calls%2 == 1 && calls < 8 {
				panic(http.ErrAbortHandler)
			}
			return noLimit, false
		}, patient},
		{"the hub falls silent in the middle", func(calls int64, w http.ResponseWriter, r *http.Request) (int64, bool) {
			if !isContent(r) || calls > 3 {
				return noLimit, false
			}
			w.Header().Set("Content-Length", "8388608")
			_, _ = w.Write(data[:1000])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return 0, true
		}, 2 * time.Second},
		{"the content is shorter than it says", func(calls int64, w http.ResponseWriter, r *http.Request) (int64, bool) {
			if !isContent(r) || calls > 3 {
				return noLimit, false
			}
			hijack(w, "HTTP/1.1 200 OK\r\nContent-Length: 8388608\r\n\r\n"+string(data[:1000]))
			return 0, true
		}, patient},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			h := newFakeHub(t, map[string][]byte{"a": data})
			var calls atomic.Int64
			h.setFault(func(w http.ResponseWriter, r *http.Request) (int64, bool) {
				return tc.fault(calls.Add(1), w, r)
			})
			r := newRig(t, h, t.TempDir(), func(c *Config) { c.Hub = newClient(t, h, tc.idle) })
			stop := watchName(t, r.dir+"/a", data)
			err := r.Run(t.Context())
			stop()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(r.read(t, "a"), data) {
				t.Error("content differs")
			}
			if got, most := h.servedBytes("a"), size+size/100; got > most {
				t.Errorf("hub sent %d bytes, want at most %d", got, most)
			}
		})
	}
}

// hijack answers with raw bytes and hangs up.
func hijack(w http.ResponseWriter, raw string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = conn.Write([]byte(raw))
	_ = conn.Close()
}

func TestPermanentFaults(t *testing.T) {
	data := noise(100_000)
	for _, tc := range []struct {
		reason   string
		fault    func(w http.ResponseWriter, r *http.Request) (int64, bool)
		requests int // 0: any number
		want     any
	}{
		{"401 is final at once", refuse(401, "RepoNotFound"), 1, new(*hub.UnauthorizedError)},
		{"403 gated is final at once", refuse(403, "GatedRepo"), 1, new(*hub.UnauthorizedError)},
		{"404 is final at once", refuse(404, "EntryNotFound"), 1, new(*hub.NotFoundError)},
		{"500 for ever is given up", refuse(500, ""), 0, new(*StalledError)},
		{"429 that outlasts us is given up", func(w http.ResponseWriter, _ *http.Request) (int64, bool) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
			return 0, true
		}, 1, new(*StalledError)},
		{"access withdrawn after the metadata is final", func(w http.ResponseWriter, r *http.Request) (int64, bool) {
			if isContent(r) {
				return refuse(403, "GatedRepo")(w, r)
			}
			return noLimit, false
		}, 3, new(*hub.UnauthorizedError)},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			h := newFakeHub(t, map[string][]byte{"a": data})
			h.setFault(tc.fault)
			r := newRig(t, h, t.TempDir(), func(c *Config) { c.GiveUpAfter = 200 * time.Millisecond })
			err := r.Run(t.Context())
			if !asIfWanted(err, tc.want) {
				t.Errorf("Run() = %v, want %v", err, reflect.TypeOf(tc.want).Elem())
			}
			if got := len(h.requestLog()); tc.requests != 0 && got != tc.requests {
				t.Errorf("%d requests %q, want %d", got, h.requestLog(), tc.requests)
			}
			if _, err := os.Stat(r.dir + "/a"); err == nil {
				t.Error("the file has its name although the fetch failed")
			}
		})
	}
}

func refuse(status int, code string) func(w http.ResponseWriter, r *http.Request) (int64, bool) {
	return func(w http.ResponseWriter, _ *http.Request) (int64, bool) {
		w.Header().Set("X-Error-Code", code)
		w.WriteHeader(status)
		return 0, true
	}
}

func TestWrongChecksum(t *testing.T) {
	data := noise(3 << 20)
	size := int64(len(data))
	wrong := hub.Digest{Algorithm: hub.SHA256, Hex: sha256Hex([]byte("something else"))}
	t.Run("twice: given up after exactly one more fetch, with nothing left behind", func(t *testing.T) {
		h := newFakeHub(t, map[string][]byte{"a": data})
		r := newRig(t, h, t.TempDir(), func(c *Config) { c.SHA256 = map[string]hub.Digest{"a": wrong} })
		stop := watchName(t, r.dir+"/a", nil)
		err := r.Run(t.Context())
		stop()
		if !asIfWanted(err, new(*hub.ChecksumError)) {
			t.Errorf("Run() = %v, want a ChecksumError", err)
		}
		if got := h.servedBytes("a"); got != 2*size {
			t.Errorf("hub sent %d bytes, want %d", got, 2*size)
		}
		if names := namesIn(t, r.dir); len(names) != 0 {
			t.Errorf("left on the volume: %q", names)
		}
	})
	t.Run("once: the second fetch is taken", func(t *testing.T) {
		h := newFakeHub(t, map[string][]byte{"a": data})
		var spoilt atomic.Bool
		h.setFault(func(w http.ResponseWriter, r *http.Request) (int64, bool) {
			if isContent(r) && spoilt.CompareAndSwap(false, true) {
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(make([]byte, size)))
				return 0, true
			}
			return noLimit, false
		})
		r := newRig(t, h, t.TempDir())
		stop := watchName(t, r.dir+"/a", data)
		err := r.Run(t.Context())
		stop()
		if err != nil || !bytes.Equal(r.read(t, "a"), data) {
			t.Errorf("Run() = %v, want the right file", err)
		}
	})
}

// The content is on another host, which must not get the token.
func TestContentOnAnotherHost(t *testing.T) {
	data := noise(100_000)
	var leaked atomic.Bool
	cdn := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaked.Store(leaked.Load() || r.Header.Get("Authorization") != "")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}))
	defer cdn.Close()
	h := newFakeHub(t, map[string][]byte{"a": data})
	h.setFault(func(w http.ResponseWriter, r *http.Request) (int64, bool) {
		if r.Header.Get("Authorization") != "Bearer hf_token" {
			w.WriteHeader(http.StatusUnauthorized)
			return 0, true
		}
		if isContent(r) {
			http.Redirect(w, r, cdn.URL+"/blob?signature=x", http.StatusFound)
			return 0, true
		}
		return noLimit, false
	})
	r := newRig(t, h, t.TempDir(), func(c *Config) {
		client, err := hub.New(hub.Options{Endpoint: h.URL, HTTP: hub.NewHTTPClient(2), Token: "hf_token"})
		if err != nil {
			t.Fatal(err)
		}
		c.Hub = client
	})
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if leaked.Load() {
		t.Error("the token travelled to the other host")
	}
}

// The agent waits for Retry-After, neither less nor much more.
func TestRetryAfterIsHonoured(t *testing.T) {
	h := newFakeHub(t, map[string][]byte{"a": noise(10)})
	var calls atomic.Int64
	h.setFault(func(w http.ResponseWriter, _ *http.Request) (int64, bool) {
		if calls.Add(1) == 1 {
			w.Header().Set("Retry-After", "20")
			w.WriteHeader(http.StatusTooManyRequests)
			return 0, true
		}
		return noLimit, false
	})
	fake := clocktesting.NewFakeClock(time.Unix(0, 0))
	r := newRig(t, h, t.TempDir(), func(c *Config) { c.Clock, c.GiveUpAfter = fake, time.Minute })
	result := make(chan error, 1)
	go func() { result <- r.Run(context.WithoutCancel(t.Context())) }()
	waitUntil(t, "the pause is on", func() bool { return fake.Waiters() == 2 }) // timers of give-up and pause
	fake.Step(19 * time.Second)
	if got := calls.Load(); got != 1 {
		t.Errorf("hub was asked %d times after 19s, want 1", got)
	}
	fake.Step(time.Second)
	if err := <-result; err != nil {
		t.Fatal(err)
	}
}

func waitUntil(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited 30s until %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
