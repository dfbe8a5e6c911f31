// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package calibration_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/calibration"
	"github.com/modelberth/modelberth/pkg/catalog"
)

// keyOf makes a key from a letter.
func keyOf(letter byte) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = letter
	return ed25519.NewKeyFromSeed(seed)
}

// publicOf returns the public key, which is the last half of a private key.
func publicOf(key ed25519.PrivateKey) []ed25519.PublicKey {
	return []ed25519.PublicKey{ed25519.PublicKey(key[ed25519.SeedSize:])}
}

func someRun() catalog.Measurement {
	return catalog.Measurement{
		Name: "mine", Engine: "vllm", Version: "0.31.0", Model: "org/Model", Revision: "abc", Quantization: "bf16", GPU: "A10",
		TensorParallel: 1, InputTokens: 1024, OutputTokens: 100, Concurrency: 4,
		TTFTMillis: 290, TPOTMillis: 10, OutputTokensPerSecond: 312.5, Source: "our lab", Date: "2026-11-24",
		Memory: catalog.MeasuredMemory{KVCacheGiB: 4.31, MaxModelLen: 8192, MaxNumSeqs: 256, MaxBatchedTokens: 2048, Utilization: 0.92},
	}
}

// signed returns a signed file of runs as text.
func signed(t *testing.T, key ed25519.PrivateKey, runs ...catalog.Measurement) []byte {
	t.Helper()
	f := calibration.File{SchemaVersion: calibration.SchemaVersion, Measurements: runs}
	if err := f.Sign(key); err != nil {
		t.Fatal(err)
	}
	data, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestOpenReturnsSignedRuns(t *testing.T) {
	runs := []catalog.Measurement{someRun()}
	got, err := calibration.Open(signed(t, keyOf('a'), runs...), publicOf(keyOf('a')))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(runs, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// Open accepts some files and refuses others.
func TestOpen(t *testing.T) {
	replace := func(old, to string) func(string) string {
		return func(text string) string {
			if !strings.Contains(text, old) {
				panic("there is no " + old)
			}
			return strings.Replace(text, old, to, 1)
		}
	}
	for _, tc := range []struct {
		reason string
		change func(string) string
		key    byte
		want   string
	}{
		{"as it was written", func(s string) string { return s }, 'a', ""},
		{"comments and layout are not content", func(s string) string { return "# mine\n\n" + s }, 'a', ""},
		{"another administrator", func(s string) string { return s }, 'b', "is not one of the trusted keys"},
		{"a faster figure", replace("tpotMs: 10", "tpotMs: 9.9"), 'a', "its content does not match its signature"},
		{"another GPU", replace("gpu: A10", "gpu: L40S"), 'a', "its content does not match its signature"},
		{"a memory of its own", replace("kvCacheGiB: 4.31", "kvCacheGiB: 6"), 'a', "its content does not match its signature"},
		{"a signature under another name", replace("key: ", "key: A"), 'a', "is not one of the trusted keys"},
		{"a value that is no base64", replace("value: ", "value: '*'\n#"), 'a', "signature.value"},
		{"no signature", func(s string) string { before, _, _ := strings.Cut(s, "signature:"); return before }, 'a', "it has no signature"},
		{"an unknown field", replace("gpu: A10", "gpu: A10\n  colour: red"), 'a', `unknown field "colour"`},
		{"a key twice", replace("gpu: A10", "gpu: A10\n  gpu: A10"), 'a', "already set in map"},
		{"a later schema", replace("schemaVersion: 1", "schemaVersion: 2"), 'a', "schemaVersion: 2 is not supported"},
		{"figures that contradict one another", replace("tpotMs: 10", "tpotMs: 1"), 'a', "contradicts"},
		{"no date", replace(`date: "2026-11-24"`, `date: ""`), 'a', "source and date"},
		{"no runs", func(string) string { return "schemaVersion: 1" }, 'a', "measurements: the list is empty"},
		{"nothing", func(string) string { return "" }, 'a', "schemaVersion: 0 is not supported"},
		{"too much", func(s string) string { return s + strings.Repeat("#", 1<<20) }, 'a', "at most 1048576 are allowed"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			text := tc.change(string(signed(t, keyOf('a'), someRun())))
			_, err := calibration.Open([]byte(text), publicOf(keyOf(tc.key)))
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q; file\n%s", err, tc.want, text)
			}
		})
	}
}

func TestSignRefusesAnIncompleteFile(t *testing.T) {
	twice := calibration.File{SchemaVersion: 1, Measurements: []catalog.Measurement{someRun(), someRun()}}
	if err := twice.Sign(keyOf('a')); err == nil || !strings.Contains(err.Error(), "an earlier measurement has the same name") {
		t.Errorf("error %v", err)
	}
}

// No change of bits in a signed file makes Open accept other content.
func TestDamagedFilesAreRefused(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	data := signed(t, keyOf('a'), someRun())
	want, err := calibration.Open(data, publicOf(keyOf('a')))
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for range 3000 {
		damaged := append([]byte(nil), data...)
		damaged[random.IntN(len(damaged))] ^= 1 << random.IntN(8)
		got, err := calibration.Open(damaged, publicOf(keyOf('a')))
		if err != nil {
			refused++
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("accepted with other content (-want +got):\n%s", diff)
		}
	}
	if refused < 2500 {
		t.Errorf("%d of 3000 damaged files were refused", refused)
	}
}

func TestKeys(t *testing.T) {
	key := keyOf('a')
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	got, err := calibration.DecodePrivateKey(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if err != nil || !got.Equal(key) {
		t.Errorf("private key %v, error %v", got, err)
	}
	for _, text := range []string{"", "-----BEGIN", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		if _, err := calibration.DecodePrivateKey([]byte(text)); err == nil || !strings.Contains(err.Error(), "openssl genpkey") {
			t.Errorf("%q: error %v", text, err)
		}
	}
	public := publicOf(key)
	keys, err := calibration.DecodeKeys([]string{calibration.EncodeKey(public[0])})
	if diff := cmp.Diff(public, keys); diff != "" || err != nil {
		t.Errorf("error %v, keys (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{"", "AAAA", "not base64"} {
		if _, err := calibration.DecodeKeys([]string{text}); err == nil {
			t.Errorf("%q is taken for a key", text)
		}
	}
}
