// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	for _, tc := range []struct{ reason, text, want string }{
		{"no URL", "connection refused", "connection refused"},
		{"a plain URL stays", `Get "https://h.example:5000/v2/a@sha256:00/x": EOF`, `Get "https://h.example:5000/v2/a@sha256:00/x": EOF`},
		{
			"a signed store of S3",
			`Get "https://b.s3.amazonaws.com/k?X-Amz-Algorithm=AWS4&X-Amz-Signature=s3cret": dial tcp 10.0.0.1:443: i/o timeout`,
			`Get "https://b.s3.amazonaws.com/k?…": dial tcp 10.0.0.1:443: i/o timeout`,
		},
		{"a shared access signature", "https://a.blob.core.windows.net/c/b?sv=1&sig=s3cret%3D: 403", "https://a.blob.core.windows.net/c/b?…: 403"},
		{"a user and a password", "https://u:s3cret@h.example/p failed", "https://…@h.example/p failed"},
		{"a token for a user", "https://s3cret@h.example", "https://…@h.example"},
		{"an at sign in the password", "https://u:s3@cret@h.example/p", "https://…@h.example/p"},
		{"a port is no password", "https://h.example:443/a@b", "https://h.example:443/a@b"},
		{"an address of IPv6", "http://[::1]:80/a?b=s3cret", "http://[::1]:80/a?…"},
		{"a fragment", "https://h.example/p#access_token=s3cret", "https://h.example/p#…"},
		{"two in a row", "(https://a/?x=s3cret), https://b/?y=s3cret.", "(https://a/?…), https://b/?…."},
		{"an escaped quote ends it", `"Get \"https://a/?x=s3cret\": EOF"`, `"Get \"https://a/?…\": EOF"`},
		{"another scheme", "s3://k:s3cret@bucket/x", "s3://…@bucket/x"},
		{"a path with a query", `location "/blob/x?sig=s3cret&t=1" is refused`, `location "/blob/x?…" is refused`},
		{"a header of a signature", "X-Amz-Security-Token=s3cret, x-goog-signature=s3cret", "X-Amz-Security-Token=…, x-goog-signature=…"},
		{"a bearer token", "Authorization: Bearer s3cretabcdefghijkl==", "Authorization: Bearer …"},
		{"a question is no query", "is it there? a=b", "is it there? a=b"},
		{"a question and an answer", "what? x=1", "what? x=1"},
		{"cut off by whoever quotes it", "https://h/x?X-Amz-Signature=s3cr…", "https://h/x?…"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got := Text(tc.text)
			if got != tc.want {
				t.Errorf("Text(%q) =\n%q, want\n%q", tc.text, got, tc.want)
			}
			if again := Text(got); again != got {
				t.Errorf("Text() is not stable: %q, then %q", got, again)
			}
		})
	}
}

func TestError(t *testing.T) {
	cause := &url.Error{Op: "Get", URL: "https://h/x?sig=s3cret", Err: errors.New("EOF")}
	err := Error(fmt.Errorf("fetching: %w", cause))
	if want := `fetching: Get "https://h/x?…": EOF`; err.Error() != want {
		t.Errorf("Error() = %q, want %q", err, want)
	}
	if !errors.Is(err, cause) {
		t.Error("Error() hides the cause")
	}
	if plain := errors.New("EOF"); !errors.Is(Error(plain), plain) || Error(plain).Error() != "EOF" || Error(nil) != nil {
		t.Error("Error() changes what has no secret")
	}
}

// FuzzText puts a signature and a password into a URL, and checks that Text removes them whatever the text around is.
func FuzzText(f *testing.F) {
	const secret = "S3CRET0123456789"
	for _, seed := range [][3]string{
		{"Get \"", "/path", "\": EOF"}, {"", "", ""}, {"http://", "", "@x"}, {"https://a?b=c&", "/x?y", "?z=1"}, {"x=", "/a@b", "#c"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, before, path, after string) {
		u := url.URL{
			Scheme: "https", Host: "h.example", User: url.UserPassword("u", secret), Path: "/" + path,
			RawQuery: url.Values{"X-Amz-Signature": {secret}, "sig": {secret + "+/="}}.Encode(),
		}
		text := before + u.String() + after
		if strings.Contains(before+after+path, secret) {
			return
		}
		got := Text(text)
		if strings.Contains(got, secret) {
			t.Errorf("Text(%q) = %q", text, got)
		}
		if again := Text(got); strings.Contains(again, secret) {
			t.Errorf("Text(%q) = %q", got, again)
		}
	})
}
