// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package body

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestJSON(t *testing.T) {
	cases := []struct {
		reason string
		text   string
		want   Fields
		err    string
	}{
		{"the model may come last", `{"messages":[{"role":"user","content":"{\"model\":\"no\"}"}],"model":"m"}`, Fields{Model: "m", Prompt: []byte(`[{"role":"user","content":"{\"model\":\"no\"}"}]`)}, ""},
		{"an escaped key is the same key", `{"\u006dodel":"m"}`, Fields{Model: "m"}, ""},
		{"a model deeper down is another one", `{"tool":{"model":"x"},"model":"m"}`, Fields{Model: "m"}, ""},
		{"all that routing needs", `{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":7,"max_completion_tokens":9,"cache_salt":"s","prompt":"p"}`, Fields{Model: "m", Stream: true, IncludeUsage: true, MaxTokens: 9, CacheSalt: "s", Prompt: []byte(`"p"`)}, ""},
		{"a usage by a name that engines ignore", `{"model":"m","stream_options":{"Include_Usage":true}}`, Fields{Model: "m"}, ""},
		{"a usage, and no usage by a name that engines ignore", `{"model":"m","stream_options":{"include_usage":true,"INCLUDE_USAGE":false}}`, Fields{Model: "m", IncludeUsage: true}, ""},
		{"a usage by the last of two names, as engines read it", `{"model":"m","stream_options":{"include_usage":true,"include_usage":false}}`, Fields{Model: "m"}, ""},
		{"a usage that is not set", `{"model":"m","stream_options":{"include_usage":null}}`, Fields{Model: "m"}, ""},
		{"a usage that is a text", `{"model":"m","stream_options":{"include_usage":"true"}}`, Fields{}, `the body's "stream_options.include_usage" is not true or false`},
		{"a name of the router's in capitals", `{"model":"m","Model":"x","STREAM":true,"Max_Tokens":7}`, Fields{Model: "m"}, ""},
		{"what else the engine reads", `{"model":"m","system":"s","prompt":"p","tools":[{}],"input":"longer"}`, Fields{Model: "m", Prompt: []byte(`"longer"`), Other: 10}, ""},
		{"two system prompts", `{"model":"m","system":"a","system":"b"}`, Fields{}, `the body has two members "system": send one`},
		{"null is as good as nothing", `{"model":"m","stream":null,"stream_options":null,"max_tokens":null}`, Fields{Model: "m"}, ""},
		{"space is allowed wherever JSON allows it", " {\n\t\"model\" :\r\"m\" , \"n\": [ 1 , -2.5e3, {} ] } ", Fields{Model: "m"}, ""},
		{"two models, of which the engine may read the other", `{"model":"a","model":"b"}`, Fields{}, `the body has two members "model": send one`},
		{"two models, one of them in disguise", `{"model":"a","mod\u0065l":"b"}`, Fields{}, `the body has two members "model": send one`},
		{"two salts, of which one would be another tenant's", `{"model":"a","cache_salt":"x","cache_salt":"y"}`, Fields{}, `the body has two members "cache_salt": send one`},
		{"no model", `{}`, Fields{}, ErrNoModel.Error()},
		{"a model that is no string", `{"model":["a"]}`, Fields{}, `the body's "model" is not a string`},
		{"a list", `[{"model":"a"}]`, Fields{}, "the body is not a JSON object: send a JSON object, as OpenAI's API requires"},
		{"nothing", ``, Fields{}, "the body is not JSON: unexpected end of JSON input"},
		{"half a body", `{"model":"a"`, Fields{}, "the body is not JSON: unexpected end of JSON input"},
		{"more after the end", `{"model":"a"} {"model":"b"}`, Fields{}, "the body is not JSON: invalid character '{' after top-level value"},
		{"a string without an end", `{"model":"a`, Fields{}, "the body is not JSON: unexpected end of JSON input"},
		{"a bomb of brackets", `{"model":"a","x":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, Fields{}, "the body is nested more than 512 deep"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			got, err := JSON([]byte(c.text))
			switch {
			case c.err == "" && err != nil:
				t.Fatal(err)
			case c.err != "":
				if err == nil || err.Error() != c.err {
					t.Errorf("the error is %v, want %s", err, c.err)
				}
				return
			}
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(Fields{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestApply(t *testing.T) {
	cases := []struct {
		reason, text string
		edit         Edit
		want         string
	}{
		{"nothing to change", `{"model":"a" }`, Edit{}, `{"model":"a" }`},
		{"other bytes stay as they are", `{ "n" : 1.0, "model" : "a", "é":"\u00e9"}`, Edit{Model: "b"}, `{ "n" : 1.0, "model" : "b", "é":"\u00e9"}`},
		{"a salt is added", ` {"model":"a"}`, Edit{CacheSalt: "s"}, ` {"cache_salt":"s","model":"a"}`},
		{"the client's salt is replaced", `{"cache_salt":"other tenant","model":"a"}`, Edit{CacheSalt: "s"}, `{"cache_salt":"s","model":"a"}`},
		{"an escaped salt is replaced, too", `{"cache\u005fsalt":"x","model":"a"}`, Edit{CacheSalt: "s"}, `{"cache\u005fsalt":"s","model":"a"}`},
		{"the usage beside other options", `{"model":"a","stream_options":{"x":1,"include_usage":false}}`, Edit{IncludeUsage: true}, `{"model":"a","stream_options":{"include_usage":true,"x":1}}`},
		{"all at once", `{"model":"a"}`, Edit{Model: `"`, CacheSalt: "s", IncludeUsage: true}, `{"cache_salt":"s","stream_options":{"include_usage":true},"model":"\""}`},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			fields, err := JSON([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			got, err := fields.Apply([]byte(c.text), c.edit)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestForm(t *testing.T) {
	form := func(parts ...string) (string, []byte) {
		var text bytes.Buffer
		w := multipart.NewWriter(&text)
		for i := 0; i < len(parts); i += 2 {
			var err error
			var part io.Writer
			if parts[i] == "file" {
				part, err = w.CreateFormFile("file", "speech.wav")
			} else {
				part, err = w.CreateFormField(parts[i])
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(part, parts[i+1]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return w.FormDataContentType(), text.Bytes()
	}
	cases := []struct {
		reason string
		parts  []string
		want   Fields
		err    string
	}{
		{"the model may follow the audio", []string{"file", "RIFF", "model", "whisper", "stream", "true"}, Fields{Model: "whisper", Stream: true, Sound: 4}, ""},
		{"a prompt beside the audio", []string{"file", "RIFF", "model", "whisper", "prompt", "names"}, Fields{Model: "whisper", Sound: 4, Other: 5}, ""},
		{"two models", []string{"model", "a", "model", "b"}, Fields{}, `the form has two parts "model": send one`},
		{"no model", []string{"file", "RIFF"}, Fields{}, ErrNoModel.Error()},
		{"a name without an end", []string{"model", strings.Repeat("a", 2000)}, Fields{}, `the form's "model" is longer than 1024 bytes`},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			kind, text := form(c.parts...)
			got, err := Form(kind, text)
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Errorf("the error is %v, want %s", err, c.err)
				}
				return
			}
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(Fields{})); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
	if _, err := Form("multipart/form-data", nil); err == nil {
		t.Error("a form without a boundary is accepted")
	}
}

func TestPromptTokens(t *testing.T) {
	cases := []struct {
		reason string
		fields Fields
		want   int
	}{
		{"nothing", Fields{}, 0},
		{"a prompt", Fields{Prompt: make([]byte, 400)}, 100},
		{"a prompt with tools", Fields{Prompt: make([]byte, 400), Other: 40}, 110},
		{"ten seconds of speech as MP3", Fields{Sound: 80_000}, 500},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			if got := c.fields.PromptTokens(); got != c.want {
				t.Errorf("%d tokens, want %d", got, c.want)
			}
		})
	}
}

func TestPrefixes(t *testing.T) {
	long := func(begin, end string, size int) Fields {
		return Fields{Prompt: []byte(begin + strings.Repeat("x", size-len(begin)-len(end)) + end)}
	}
	a, b, c := long("a", "a", 5000), long("a", "b", 5000), long("b", "a", 5000)
	if diff := cmp.Diff(a.Prefixes("s"), b.Prefixes("s")); diff != "" || len(a.Prefixes("s")) != 2 {
		t.Errorf("prompts that differ at their end have other prefixes:\n%s", diff)
	}
	if cmp.Equal(a.Prefixes("s")[0], c.Prefixes("s")[0]) {
		t.Error("prompts that differ at their beginning have the same prefix")
	}
	if cmp.Equal(a.Prefixes("s"), a.Prefixes("t")) {
		t.Error("prompts of two tenants have the same prefixes")
	}
	if short := long("a", "", 1000); len(short.Prefixes("s")) != 0 {
		t.Error("a short prompt has a prefix")
	}
}

// FuzzJSON compares the reader with encoding/json.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","stream":true}`, `{"mod\u0065l":"a","model":"b"}`, `{"a":[{"model":1},"\\\""],"model":"x"}`, `[]`, `{`, ` {"model" : "\ud800"} `, `{"model":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := JSON(text)
		var want map[string]json.RawMessage
		reference := json.Unmarshal(text, &want)
		if err == nil && reference != nil {
			t.Fatalf("%q is accepted, and encoding/json says: %v", text, reference)
		}
		if err != nil {
			return
		}
		var model string
		if err := json.Unmarshal(want["model"], &model); err != nil || model != got.Model {
			t.Fatalf("the model of %q is %q, want %q (%v)", text, got.Model, model, err)
		}
		edited, err := got.Apply(text, Edit{Model: "new", CacheSalt: "salt", IncludeUsage: true})
		if err != nil {
			t.Fatal(err)
		}
		var after map[string]json.RawMessage
		if err := json.Unmarshal(edited, &after); err != nil {
			t.Fatalf("%q became %q: %v", text, edited, err)
		}
		for _, key := range []string{"model", "cache_salt", "stream_options"} {
			if len(after[key]) == 0 {
				t.Errorf("%q became %q without %s", text, edited, key)
			}
			delete(after, key)
			delete(want, key)
		}
		if diff := cmp.Diff(want, after); diff != "" {
			t.Errorf("%q became %q (-want +got):\n%s", text, edited, diff)
		}
	})
}

func BenchmarkJSON(b *testing.B) {
	text := []byte(`{"messages":[{"role":"user","content":"` + strings.Repeat(`word \"x\" `, 40_000) + `"}],"model":"m"}`)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := JSON(text); err != nil {
			b.Fatal(err)
		}
	}
}
