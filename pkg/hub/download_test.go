// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

func serveContent(data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
}

func TestOpen(t *testing.T) {
	data := content(1000)
	whole := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) }
	shifted := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", "bytes 0-9/1000")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(data[:10])
	}
	short := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", "bytes 10-19/1000")
		w.Header().Set("Content-Length", "10")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(data[10:15])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	for _, tc := range []struct {
		reason  string
		handler http.HandlerFunc
		r       Range
		want    []byte
		err     string
	}{
		{"the middle", serveContent(data), Range{100, 300}, data[100:300], ""},
		{"the last byte", serveContent(data), Range{999, 1000}, data[999:], ""},
		{"all of it", serveContent(data), Range{0, 1000}, data, ""},
		{"a server without ranges serves a beginning, and we stop where we meant to", whole, Range{0, 10}, data[:10], ""},
		{"a server without ranges cannot resume", whole, Range{10, 20}, nil, "the hub ignores byte ranges"},
		{"another range than asked", shifted, Range{10, 20}, nil, `requested bytes 10-19 and got content range "bytes 0-9/1000"`},
		{"a file shorter than promised", serveContent(data), Range{990, 1010}, nil, `got content range "bytes 990-999/1000"`},
		{"past the end", serveContent(data), Range{2000, 2001}, nil, "416 Requested Range Not Satisfiable"},
		{"a cut connection: what came is kept", short, Range{10, 20}, data[10:15], "connection ended 5 bytes early: unexpected EOF"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			c := newTestClient(t, serve(t, tc.handler).URL)
			got, err := readRange(t.Context(), c, tc.r)
			if !bytes.Equal(got, tc.want) {
				t.Errorf("read %d bytes, want %d of the right ones", len(got), len(tc.want))
			}
			if tc.err == "" && err == nil {
				return
			}
			if _, again := Again(err); !again || tc.err == "" || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("err = %v, want an error with %q that may go away", err, tc.err)
			}
		})
	}
}

func readRange(ctx context.Context, c *Client, r Range) ([]byte, error) {
	body, err := c.Open(ctx, File{testRepo, "main", "a"}, r)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

func TestOpenRefusesAnEmptyRange(t *testing.T) {
	c := newTestClient(t, "http://h.invalid")
	for _, r := range []Range{{0, 0}, {5, 4}, {-1, 3}} {
		if _, err := readRange(t.Context(), c, r); err == nil {
			t.Errorf("Open(%v) succeeded", r)
		}
	}
}

func TestOpenSilence(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write(content(10))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	c := newTestClient(t, s.URL, func(o *Options) { o.IdleTimeout = 30 * time.Millisecond })
	got, err := readRange(t.Context(), c, Range{0, 100})
	if len(got) != 10 {
		t.Errorf("read %d bytes before the silence, want 10", len(got))
	}
	if !errors.As(err, new(*UnreachableError)) || !errors.Is(err, errSilent) {
		t.Errorf("err = %v, want an UnreachableError for silence", err)
	}
}

func TestOpenOutlivesIdleTimeoutWhileBytesFlow(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		for _, b := range content(10) {
			_, _ = w.Write([]byte{b})
			_ = http.NewResponseController(w).Flush()
			time.Sleep(20 * time.Millisecond)
		}
	})
	c := newTestClient(t, s.URL, func(o *Options) { o.IdleTimeout = 150 * time.Millisecond })
	got, err := readRange(t.Context(), c, Range{0, 10})
	if err != nil || !bytes.Equal(got, content(10)) {
		t.Errorf("read %d bytes, %v; want all 10 although they took longer than the idle timeout", len(got), err)
	}
}

// The token goes only to the hub's origin: not to a CDN, not to another port of the same host, not to plain http, and
// not to the hub after a redirect back from another origin.
func TestTokenStaysAtHome(t *testing.T) {
	data := content(100)
	type seen struct{ Host, Authorization string }
	var requests []seen
	note := func(name string, r *http.Request) {
		requests = append(requests, seen{name, r.Header.Get("Authorization")})
	}
	var home, cdn *httptest.Server
	cdn = serve(t, func(w http.ResponseWriter, r *http.Request) {
		note("cdn", r)
		if strings.HasSuffix(r.URL.Path, "/boomerang") {
			http.Redirect(w, r, home.URL+"/blob", http.StatusFound)
			return
		}
		serveContent(data)(w, r)
	})
	home = serve(t, func(w http.ResponseWriter, r *http.Request) {
		note("home", r)
		switch {
		case r.URL.Path == "/blob":
			serveContent(data)(w, r)
		case strings.HasSuffix(r.URL.Path, "/renamed"):
			http.Redirect(w, r, "/org/new/resolve/main/a", http.StatusTemporaryRedirect)
		case strings.HasSuffix(r.URL.Path, "/a"):
			http.Redirect(w, r, cdn.URL+"/a?signature=secret", http.StatusFound)
		default:
			http.Redirect(w, r, cdn.URL+"/boomerang", http.StatusFound)
		}
	})
	bearer := "Bearer " + testToken
	for _, tc := range []struct {
		reason, path string
		want         []seen
	}{
		{"to a CDN", "a", []seen{{"home", bearer}, {"cdn", ""}}},
		{"a rename within the hub keeps it", "renamed", []seen{{"home", bearer}, {"home", bearer}, {"cdn", ""}}},
		{"what left does not come back with it", "boomerang", []seen{{"home", bearer}, {"cdn", ""}, {"home", ""}}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			requests = nil
			c := newTestClient(t, home.URL)
			body, err := c.Open(t.Context(), File{testRepo, "main", tc.path}, Range{0, 100})
			if err != nil {
				t.Fatal(err)
			}
			defer body.Close()
			if got, err := io.ReadAll(body); err != nil || !bytes.Equal(got, data) {
				t.Errorf("read %d bytes, %v", len(got), err)
			}
			if diff := cmp.Diff(tc.want, requests); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOpenFailuresElsewhere(t *testing.T) {
	for _, status := range []int{401, 403, 404, 500} {
		t.Run(fmt.Sprintf("a CDN's %d is not the hub's word", status), func(t *testing.T) {
			cdn := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			home := serve(t, func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, cdn.URL+"/x?signature=secret", http.StatusFound)
			})
			_, err := readRange(t.Context(), newTestClient(t, home.URL), Range{0, 1})
			var unreachable *UnreachableError
			if !errors.As(err, &unreachable) || unreachable.Status != status || unreachable.Endpoint != cdn.URL {
				t.Errorf("err = %#v, want an UnreachableError of %s", err, cdn.URL)
			}
		})
	}
	t.Run("the signed address stays out of errors", func(t *testing.T) {
		home := serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/x?signature=secret", http.StatusFound)
		})
		_, err := readRange(t.Context(), newTestClient(t, home.URL), Range{0, 1})
		if !errors.As(err, new(*UnreachableError)) || strings.Contains(err.Error(), "secret") {
			t.Errorf("err = %v, want an UnreachableError without the signature", err)
		}
	})
	for reason, location := range map[string]string{
		"a redirect that is not a URL stays out of errors": "http://[::1/x?signature=secret",
		"a user of another scheme stays out of errors":     "ftp://u:secret@h/x",
	} {
		t.Run(reason, func(t *testing.T) {
			home := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", location)
				w.WriteHeader(http.StatusFound)
			})
			_, err := readRange(t.Context(), newTestClient(t, home.URL), Range{0, 1})
			if err == nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("err = %v, want an error without the secret", err)
			}
		})
	}
	t.Run("what the hub says is shown without addresses' secrets", func(t *testing.T) {
		home := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Error-Message", "blocked: https://cdn.example/x?sig=secret")
			w.WriteHeader(http.StatusForbidden)
		})
		_, err := readRange(t.Context(), newTestClient(t, home.URL), Range{0, 1})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("err = %v, want an error without the secret", err)
		}
	})
	t.Run("redirects end", func(t *testing.T) {
		home := serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		})
		_, err := readRange(t.Context(), newTestClient(t, home.URL), Range{0, 1})
		if malformed, ok := errors.AsType[*MalformedError](err); !ok || malformed.Endpoint != home.URL {
			t.Errorf("err = %v, want a MalformedError of %s", err, home.URL)
		}
	})
}
