// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestServe asks over a socket, as the controller does.
func TestServe(t *testing.T) {
	ours := authority(t)
	roots := trust(t, ours, false)
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		s := &server{log: slog.New(slog.DiscardHandler), trustedRoot: roots}
		ended <- s.serve(ctx, listener)
	}()
	valid, err := json.Marshal(request{
		Bundle: encoded(t, signed(t, ours, statement("model"), time.Now().Add(5*time.Minute))),
		Digest: digestOf("model"), PredicateType: predicate, Issuer: issuer, Subject: subject,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason  string
		request []byte
		want    string // part of the problem; empty where there is none
	}{
		{"valid", valid, ""},
		{"empty", nil, "malformed"},
		{"oversized", bytes.Repeat([]byte(" "), maxRequest+1), "more than"},
		{"two at once", append(bytes.Clone(valid), valid...), "unexpected data follows"},
		{"something unknown", bytes.Replace(valid, []byte(`{"bundle"`), []byte(`{"trust":"all","bundle"`), 1), "unknown field"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			said := ask(t, socket, tc.request)
			if said.Verified != (tc.want == "") || !strings.Contains(said.Problem, tc.want) || len(said.Problem) > maxProblem {
				t.Errorf("answer %+v, want %q", said, tc.want)
			}
		})
	}
	stop()
	_ = listener.Close()
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
}

func ask(t *testing.T, socket string, content []byte) answer {
	t.Helper()
	connection, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	_, _ = connection.Write(content) // the server may have hung up on what is too long
	_ = connection.CloseWrite()
	read, err := io.ReadAll(connection)
	if err != nil {
		t.Fatal(err)
	}
	var out answer
	if err := json.Unmarshal(read, &out); err != nil {
		t.Fatalf("%q: %v", read, err)
	}
	return out
}

// TestRequestOfTheController: the controller's tests make the same request.
func TestRequestOfTheController(t *testing.T) {
	content, err := os.ReadFile("testdata/request.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseRequest(content)
	if err != nil {
		t.Fatal(err)
	}
	want := request{
		Bundle: []byte("{}"), Digest: strings.Repeat("0", 63) + "1", PredicateType: predicate,
		Issuer: issuer, SubjectRegExp: `https://ci\.example/.*`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request: -want +got:\n%s", diff)
	}
}

// FuzzRequest: nothing that a client may send ends the program, and what is taken has all that is needed.
func FuzzRequest(f *testing.F) {
	content, err := os.ReadFile("testdata/request.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Add([]byte(`{"bundle":"","digest":"","issuer":""}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, content []byte) {
		got, err := readRequest(bytes.NewReader(content))
		if err == nil && (len(got.Bundle) == 0 || len(got.Digest) != 64 || got.Issuer == "" || got.Subject == "" && got.SubjectRegExp == "") {
			t.Errorf("%q is taken for %+v", content, got)
		}
		if err != nil && answerTo(err).Verified {
			t.Errorf("%q is verified", content)
		}
	})
}
