// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonstream

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// flat reads an object of arrays of numbers and skips the rest.
func flat(document string) (map[string][]int64, error) {
	d := New(iotest.OneByteReader(strings.NewReader(document)))
	out := map[string][]int64{}
	err := d.Object(func(key string) error {
		if key == "skipped" {
			return d.Skip()
		}
		out[key] = []int64{}
		return d.Array(func() error {
			var n int64
			err := d.Value(&n)
			out[key] = append(out[key], n)
			return err
		})
	})
	if err == nil {
		err = d.End()
	}
	return out, err
}

func TestDecoder(t *testing.T) {
	for _, tc := range []struct {
		reason, document string
		want             map[string][]int64
		wantErr          string
	}{
		{"empty", " {} ", map[string][]int64{}, ""},
		{"numbers", `{"a":[1,-2],"b":[]}`, map[string][]int64{"a": {1, -2}, "b": {}}, ""},
		{"skipped values of each kind", `{"skipped":[{"x":[1,"]"]},null,true,1e9],"a":[7],"skipped":{},"skipped":"\"}"}`, map[string][]int64{"a": {7}}, ""},
		{"nothing", "", nil, "unexpected EOF"},
		{"not an object", `[1]`, nil, "want an object"},
		{"not an array", `{"a":{}}`, nil, "want an array"},
		{"not a number", `{"a":["1"]}`, nil, "cannot unmarshal string"},
		{"not a whole number", `{"a":[1.5]}`, nil, "cannot unmarshal number 1.5"},
		{"a number beyond 64 bits", `{"a":[9223372036854775808]}`, nil, "cannot unmarshal number"},
		{"cut off", `{"a":[1`, nil, "EOF"},
		{"cut off in what is skipped", `{"skipped":[1`, nil, "EOF"},
		{"not JSON", `{x}`, nil, "invalid character 'x'"},
		{"a second document", `{}{}`, nil, "{ follows the document"},
		{"as deep as is allowed", `{"skipped":` + strings.Repeat("[", maxDepth-1) + strings.Repeat("]", maxDepth-1) + `}`, map[string][]int64{}, ""},
		{"too deep", `{"skipped":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + `}`, nil, "nested more than 64 deep"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, err := flat(tc.document)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("error = %v, want one with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestValues(t *testing.T) {
	d := New(strings.NewReader(`{"text":"t","other":[1],"raw":{"a": 1}, "null":null,"object":{"a":"in"},"list":[{"a":"no"}]}`))
	var got []string
	err := d.Object(func(key string) error {
		if key == "raw" {
			var raw json.RawMessage
			err := d.Value(&raw)
			got = append(got, string(raw))
			return err
		}
		read := func(string) error {
			text, err := d.Text()
			got = append(got, text)
			return err
		}
		if key == "object" || key == "list" {
			return d.ObjectIfAny(read)
		}
		return read(key)
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"t", "", `{"a": 1}`, "", "in"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// FuzzSkip checks that this package and encoding/json accept the same documents.
func FuzzSkip(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":null}]}`, `[[[`, `{"a"`, `"\ud800"`, `{"a":1,}`, `1 2`, `{}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, document string) {
		d := New(strings.NewReader(document))
		err := d.Skip()
		if err == nil {
			err = d.End()
		}
		if deep := fmt.Sprint(err) == errTooDeep.Error(); !deep && (err == nil) != json.Valid([]byte(document)) {
			t.Errorf("%q: %v, but Valid() is %t", document, err, json.Valid([]byte(document)))
		}
	})
}
